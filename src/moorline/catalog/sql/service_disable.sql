update moorline.service set is_disabled = $2 where number = $1
