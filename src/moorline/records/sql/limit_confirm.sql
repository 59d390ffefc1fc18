update moorline_records.registration set log_limit = {limit} where n = {n} and log_limit < {limit};
