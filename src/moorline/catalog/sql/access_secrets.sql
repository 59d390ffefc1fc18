-- The one before goes on being taken until its time is over; how long that is from now.
select secret, coalesce(secret_before, '') as before,
       coalesce(extract(epoch from secret_before_until - clock_timestamp()) * 1000, 0)::bigint as before_left_ms
from moorline.access_state
