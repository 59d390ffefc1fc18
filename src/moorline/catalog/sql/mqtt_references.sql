select home, mqtt_reference
from moorline.node
where mqtt_reference <> '' and home <> $1 and seen_at > clock_timestamp() - make_interval(secs => $2 / 1000.0)
order by home;
