-- The small log: what a row was before each change. A line has the number that the change gave its row, or one from the
-- same sequence, and is written only up to the limit: without a reader the log ends, and nobody fails or waits.
create sequence moorline_records.log_limit_{n};
select setval('moorline_records.log_limit_{n}', {log_rows_max});

create table moorline_records.log_{n} (
    n bigint not null,
    xid xid8 not null,
    kind "char" not null,
    {log_columns},
    prev_seq bigint,
    prev_xid xid8,
    -- One index for all: lines are asked for by transaction, and go in about that order.
    primary key (xid, n)
);

-- Of a deletion. As in the stamp, every name is qualified, and a column that was renamed fails no writer.
create function moorline_records.log_{n}() returns trigger
language plpgsql security definer as $moorline$
declare
    line moorline_records.log_{n};
begin
    begin
        line.kind := 'D';
        {line_values}
        line.prev_seq := old.moor_seq;
        line.prev_xid := old.moor_made;
    exception when others then
        line := null;
        line.kind := 'T';
    end;
    line.n := pg_catalog.nextval('moorline_records.seq_{n}'::pg_catalog.regclass);
    if line.n operator(pg_catalog.<=) {log_limit} then
        insert into moorline_records.log_{n} (n, xid, kind, {log_names}, prev_seq, prev_xid)
        values (
            line.n, pg_catalog.pg_current_xact_id(), line.kind, {line_names}, line.prev_seq, line.prev_xid
        );
    end if;
    return null;
end
$moorline$;
revoke all on function moorline_records.log_{n}() from public;

create function moorline_records.truncate_{n}() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $moorline$
begin
    insert into moorline_records.log_{n} (n, xid, kind)
    select line.n, pg_current_xact_id(), 'T'
    from (select nextval('moorline_records.seq_{n}') as n offset 0) as line, moorline_records.log_limit_{n} as bound
    where line.n <= bound.last_value;
    return null;
end
$moorline$;
revoke all on function moorline_records.truncate_{n}() from public;

-- The condition names the columns, and nothing comes of that but this: Postgres refuses to drop one of them, or to
-- change its type, while the trigger that reads them is there.
create trigger zzz_moorline_log_delete after delete on {table}
for each row when (old.moor_seq is not null or ({named_columns}))
execute function moorline_records.log_{n}();
alter table {table} enable always trigger zzz_moorline_log_delete;
