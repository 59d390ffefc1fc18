select moorline.open_operation($1, $2, $3, $4, $5)
