select * from moorline.group_state where mode = $1 and name = $2 and filter = $3
