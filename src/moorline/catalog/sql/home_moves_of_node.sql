-- The moves that are wanted of the homes of a node.
select m.home, m.id, h.name
from moorline.home_move m
join moorline.home h on h.number = m.home
where h.node = $1 and m.state in ('asked', 'copying', 'handing')
