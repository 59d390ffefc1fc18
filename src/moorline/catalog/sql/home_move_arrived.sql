-- A home that moved serves at its new node.
update moorline.home_move set opened_at = clock_timestamp() where home = $1 and state = 'done' and opened_at is null
