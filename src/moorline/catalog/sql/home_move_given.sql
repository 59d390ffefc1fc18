-- How often a home had moved when it came here by that move, if it has not moved on since. What an operator has asked for behind
-- that says nothing of it: of a home only the last move is known, and only `home.move` says which one brought it where it is.
select moves from moorline.home where name = $1 and move = $2 and $2 <> ''::bytea
