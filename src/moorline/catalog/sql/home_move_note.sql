-- How far it is, by the node that has the home. One that was given up meanwhile stays so.
update moorline.home_move set state = $2, problem = $3, files = $4, bytes = $5, bytes_copied = $6
where id = $1 and state in ('asked', 'copying', 'handing')
returning true
