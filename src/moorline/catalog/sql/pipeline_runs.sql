-- Those that began before $1 microseconds since 1970, or all if that is 0; the newest first.
select run, kind, what, is_proven, proof, why, principal, done, total,
    case when state = 'running' and told_at < clock_timestamp() - $3 * interval '1 millisecond'
        then 'silent' else state end as state,
    (extract(epoch from started_at) * 1000000)::bigint as started_us,
    (extract(epoch from told_at) * 1000000)::bigint as told_us
from moorline.pipeline_run
where $1::bigint = 0 or started_at < to_timestamp($1::bigint / 1000000.0)
order by started_at desc
limit $2
