-- No row if the number is another home's: then another one is drawn.
insert into moorline.home (number, name, node) values ($1, $2, $3)
on conflict (number) do nothing
returning number
