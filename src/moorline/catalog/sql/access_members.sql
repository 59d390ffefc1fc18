select name, member from moorline.access_member where version > $1
