select name, is_disabled, version from moorline.access_user where version > $1
