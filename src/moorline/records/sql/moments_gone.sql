-- Those before what was visible a life ago are of no use any more.
delete from moorline_records.moment
where n = {n} and at < (
    select max(at) from moorline_records.moment
    where n = {n} and at <= clock_timestamp() - make_interval(secs => {life_s})
);
