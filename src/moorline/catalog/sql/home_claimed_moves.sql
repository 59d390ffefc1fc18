-- How often the home of a folder has moved, by its number and by the node that the folder is of: a home is of one node for ever.
select h.name, h.moves, coalesce(n.name, '') as node_name
from moorline.home h
left join moorline.node n on n.id = h.node
where h.number = $1 or h.node = $2
