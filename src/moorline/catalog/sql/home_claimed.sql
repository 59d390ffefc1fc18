-- The homes that a claim has to look at: of that name, and of the number that the folder has.
select h.number, h.name, h.node, h.moves, coalesce(n.name, '') as node_name
from moorline.home h
left join moorline.node n on n.id = h.node
where h.name = $1 or h.number = $2
