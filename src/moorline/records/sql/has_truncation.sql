exists (select from moorline_records.log_{n} l where l.kind = 'T' and ({line_behind}))
