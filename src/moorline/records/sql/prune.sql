-- The oldest lines, of those that were visible at a moment. No more at a time than is soon done.
with gone as (
    delete from moorline_records.log_{n} l
    using (
        select xid, n from moorline_records.log_{n}
        where xid < '{xmax}' and xid <> all ('{open}'::xid8[]) and n <= {upto}
        order by xid, n
        limit {rows_max}
    ) first
    where l.xid = first.xid and l.n = first.n
    returning l.xid
)
select count(*) as rows, max(xid)::text as xid from gone;
