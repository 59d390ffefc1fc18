-- Both sides have these files.
update moorline.home_move set files = $3, bytes = $4, bytes_copied = $4, hash = $5
where id = $1 and state = 'handing' and incarnation = $2
returning true
