(select last_value from moorline_records.seq_{n} where is_called)
