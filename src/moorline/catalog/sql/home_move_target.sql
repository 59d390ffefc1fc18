-- The node of that name or home, those that live first; whether it gives its own home away, and whether another home is on its
-- way to the node $3. Either would leave a home on its way to a node that serves elsewhere by then.
select n.id, n.name, n.home, n.roles,
       n.seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' as is_alive,
       exists (
           select from moorline.home_move m join moorline.home h on h.number = m.home
           where h.node = n.id and m.state in ('asked', 'copying', 'handing')
       ) as is_leaving,
       exists (
           select from moorline.home_move m where m.target = $3 and m.state in ('asked', 'copying', 'handing')
       ) as is_source_wanted
from moorline.node n where n.name = $1 or n.home = $1
order by n.seen_at > clock_timestamp() - $2::bigint * interval '1 millisecond' desc, n.name = $1 desc
limit 1
