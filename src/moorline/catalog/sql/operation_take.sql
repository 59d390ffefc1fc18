select moorline.take_operation($1, $2, $3)
