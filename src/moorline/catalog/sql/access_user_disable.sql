update moorline.access_user set
    is_disabled = $2, version = moorline.access_changed('user', $1, '', false, $3)
where name = $1
