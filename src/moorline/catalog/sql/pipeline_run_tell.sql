-- Whether it was taken: not of another principal's run, and an end stays.
insert into moorline.pipeline_run as kept
    (run, kind, what, state, done, total, is_proven, proof, why, principal)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (run) do update
set state = excluded.state,
    done = excluded.done,
    total = excluded.total,
    is_proven = excluded.is_proven,
    proof = excluded.proof,
    why = excluded.why,
    told_at = clock_timestamp()
where kept.principal = excluded.principal and (kept.state = 'running' or kept.state = excluded.state)
returning xmax = 0 as is_new
