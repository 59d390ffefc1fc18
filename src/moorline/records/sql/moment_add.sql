-- Not where there is nothing to prune, and not more often than it is of use.
insert into moorline_records.moment (n, at, snapshot)
select {n}, clock_timestamp(), pg_current_snapshot()
where
    exists (select from moorline_records.log_{n})
    and not exists (
        select from moorline_records.moment
        where n = {n} and at > clock_timestamp() - make_interval(secs => {apart_s})
    );
