select h.number, h.node, h.moves, n.name as node_name from moorline.home h
left join moorline.node n on n.id = h.node
where h.name = $1
