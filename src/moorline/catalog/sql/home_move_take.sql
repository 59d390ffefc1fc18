-- The home is another node's if what was proven is what that one has, and if nobody has claimed the home since it was closed.
-- In one transaction with the lock of claims.
with proven as materialized (
    select m.home, m.incarnation from moorline.home_move m
    where m.id = $1 and m.target = $2 and m.state = 'handing' and m.hash = $3 and m.hash <> '' and m.files = $4
    for update
), free as materialized (
    select n.id from moorline.node n
    join moorline.home h on h.node = n.id
    join proven on proven.home = h.number
    where n.incarnation = proven.incarnation and n.lease_until is null
    for update of n
), named as (
    -- No sign of life of before counts: its addresses are those of the node that it left.
    update moorline.node n set name = $5, addresses = '{}', http = null, seen_at = '-infinity'
    from free where n.id = free.id
), moved as (
    update moorline.home h set moves = h.moves + 1, move = $1
    from proven, free where h.number = proven.home
    returning h.number, h.moves
)
update moorline.home_move m set state = 'done', problem = '' from moved where m.home = moved.number
returning moved.moves
