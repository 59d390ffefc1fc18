-- Of a home whose files are put back beside a catalog that lives: how often it has moved, and whether a process holds it.
select h.moves, coalesce(n.name, '') as node, coalesce(n.lease_until > clock_timestamp(), false) as is_held
from moorline.home h
left join moorline.node n on n.id = h.node
where h.number = $1
