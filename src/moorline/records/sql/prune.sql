-- The oldest lines: beyond their life, or so many that the limit would be reached. What is asked of the log from now on
-- must be above all of them. Only the first ones are looked at, so that a look at a long log costs little.
with gone as (
    delete from moorline_records.log_{n} l
    using (select xid, n, at from moorline_records.log_{n} order by xid, n limit {rows_max}) first
    where
        l.xid = first.xid and l.n = first.n
        and (
            first.at < now() - make_interval(secs => {life_s})
            or first.n <= (select last_value from moorline_records.seq_{n}) - {rows_kept}
        )
    returning l.xid
)
select count(*) as rows, max(xid)::text as xid from gone;
