select
    id,
    secret,
    extract(epoch from valid_until - clock_timestamp())::bigint as left_s,
    created_at > clock_timestamp() - make_interval(secs => $1::float8) as is_young
from moorline.record_key
where valid_until > clock_timestamp()
order by id
