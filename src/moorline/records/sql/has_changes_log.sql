exists (select from moorline_records.log_{n} l where {line_behind})
    or exists (select from {table} t where t.{made} <> '0' and ({made_behind}))
