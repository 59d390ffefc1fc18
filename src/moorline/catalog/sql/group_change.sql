select moorline.change_group($1, $2, $3, $4)
