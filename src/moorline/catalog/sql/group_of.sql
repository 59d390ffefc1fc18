select * from moorline.group_state where reader = $1
