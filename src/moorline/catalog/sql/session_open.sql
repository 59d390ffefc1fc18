select * from moorline.open_session($1, $2, $3, $4)
