select * from moorline.session_state order by name, filter
