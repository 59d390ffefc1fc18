select s.name, s.owner, s.node, s.expiry_s,
       (extract(epoch from s.seen_at) * 1000000)::bigint as seen_us,
       (extract(epoch from s.created_at) * 1000000)::bigint as created_us,
       m.subscriptions
from moorline.session s
join moorline.mqtt_session m on m.name = s.name
where s.name > $1
order by s.name
limit $2
