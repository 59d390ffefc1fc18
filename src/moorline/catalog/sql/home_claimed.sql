-- The homes that a claim has to look at: of that name, and of the number that the folder has.
select number, name, node from moorline.home where name = $1 or number = $2
