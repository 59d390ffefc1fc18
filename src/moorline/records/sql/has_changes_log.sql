exists (select from moorline_records.log_{n} l where {line_behind})
    or exists (select from {table} t where t.moor_xid <> '0' and ({row_behind}))
