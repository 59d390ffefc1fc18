select setval('moorline_records.log_limit_{n}', {limit});
