select * from moorline.group_state order by name, filter, mode
