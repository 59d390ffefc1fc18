-- The oldest lines: beyond their life, or so many that the limit would be reached. What is asked of the log from now on
-- must be above all of them.
with gone as (
    delete from moorline_records.log_{n}
    where n in (
        select n from moorline_records.log_{n}
        where
            at < now() - make_interval(secs => {life_s})
            or n <= (select last_value from moorline_records.log_n_{n}) - {rows_kept}
        order by n limit {rows_max}
    )
    returning xid
)
select count(*) as rows, max(xid)::text as xid from gone;
