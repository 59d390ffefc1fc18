-- What was visible a life ago, a while ago, and is now; and how full the log is.
select
    (
        select snapshot::text from moorline_records.moment
        where n = {n} and at <= clock_timestamp() - make_interval(secs => {life_s})
        order by at desc limit 1
    ) as old,
    (
        select snapshot::text from moorline_records.moment
        where n = {n} and at <= clock_timestamp() - make_interval(secs => {while_s})
        order by at desc limit 1
    ) as recent,
    pg_current_snapshot()::text as now,
    (select last_value from moorline_records.seq_{n}) as last,
    (select last_value from moorline_records.log_limit_{n}) as limit_now,
    (select n from moorline_records.log_{n} order by xid, n limit 1) as first_n,
    r.cleared_below::text as cleared_below,
    r.pruned_below::text as pruned_below,
    r.pruned_at::text as pruned_at
from moorline_records.registration r
where r.n = {n};
