-- A move that is under way to a node, as that node asks for it.
select m.home, m.id, h.name, h.moves, h.move, m.state, m.hash, m.files, coalesce(owner.home, '') as source_home
from moorline.home_move m
join moorline.home h on h.number = m.home
left join moorline.node owner on owner.id = h.node
where m.id = $1 and m.target = $2 and m.state in ('asked', 'copying', 'handing', 'done')
