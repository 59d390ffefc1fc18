select owner from moorline.session where name = $1
