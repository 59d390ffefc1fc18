select home, name, id, roles, addresses, http, version, started_at, seen_at, shards
from moorline.node
where seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond'
order by home;
