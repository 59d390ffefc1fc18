-- The node of that name or home, those that live first.
select id, name, home, roles,
       seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' as is_alive
from moorline.node where name = $1 or home = $1
order by seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' desc, name = $1 desc
limit 1
