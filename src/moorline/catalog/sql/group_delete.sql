select moorline.delete_group($1, $2, $3)
