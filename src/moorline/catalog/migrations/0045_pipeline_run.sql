-- What runs of the pipeline said of themselves, the newest of them: progress, and what they have proven.
create table moorline.pipeline_run (
    run         text primary key check (length(run) between 1 and 64),
    kind        text not null,
    what        text not null,
    state       text not null check (state in ('running', 'done', 'failed')),
    done        bigint not null,
    total       bigint not null,
    is_proven   boolean,
    proof       text not null,
    why         text not null,
    -- As whom it told: nobody else may tell of it.
    principal   text not null,
    started_at  timestamptz not null default clock_timestamp(),
    told_at     timestamptz not null default clock_timestamp()
);

create index pipeline_run_started on moorline.pipeline_run (started_at desc);
