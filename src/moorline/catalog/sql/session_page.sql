-- Sessions behind that name, by name, as many as are asked for, each with how many filters it has.
select s.name, s.owner, s.node,
       (select count(*) from moorline.subscription u where u.session = s.name) as filters,
       s.expiry_s,
       greatest(0, extract(epoch from clock_timestamp() - s.seen_at) * 1000)::bigint as silent_ms,
       (extract(epoch from s.created_at) * 1000000)::bigint as created_us
from moorline.session s
where s.name > $1
order by s.name limit $2
