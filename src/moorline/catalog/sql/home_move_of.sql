-- The move of a home, and whether it is under way.
select m.home, m.id, m.target, m.state, n.home as target_home, n.addresses,
       m.state in ('asked', 'copying', 'handing') as is_wanted
from moorline.home_move m
left join moorline.node n on n.id = m.target
where m.home = $1
