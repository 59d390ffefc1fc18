-- `for update` waits for whoever acts in this node's name at this moment (`for key share`), and lets nobody begin to.
select home, name, incarnation, lock, started_at,
       ceil(extract(epoch from lease_until) * 1000)::bigint as lease_until_ms,
       (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
from moorline.node where id = $1 for update
