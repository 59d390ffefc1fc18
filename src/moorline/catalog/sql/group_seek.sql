select moorline.seek_group($1, $2, $3, $4, $5, $6, $7, $8)
