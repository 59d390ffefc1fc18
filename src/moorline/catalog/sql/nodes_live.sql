select home, addresses
from moorline.node
where 'broker' = any (roles) and seen_at > clock_timestamp() - make_interval(secs => $1 / 1000.0)
order by home;
