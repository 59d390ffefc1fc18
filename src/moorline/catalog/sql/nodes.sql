select home, name, id, roles, addresses, http, version, started_at, seen_at, shards
from moorline.node
order by home;
