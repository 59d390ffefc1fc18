select filter, qos, reader, start_us from moorline.subscribe($1, $2, $3, $4, $5, $6)
