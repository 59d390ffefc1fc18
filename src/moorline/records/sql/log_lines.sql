(select last_value from moorline_records.log_n_{n} where is_called)
