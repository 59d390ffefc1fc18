-- No row if the number is another home's: then another one is drawn.
insert into moorline.home (number, name, node, moves) values ($1, $2, $3, $4)
on conflict (number) do nothing
returning number
