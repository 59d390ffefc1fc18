-- Whether a move to a node was given up, and can come to nothing more.
select exists (
    select from moorline.home_move m where m.id = $1 and m.target = $2 and m.state in ('failed', 'cancelled')
)
