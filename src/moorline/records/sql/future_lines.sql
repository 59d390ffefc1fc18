exists (select from moorline_records.log_{n} l where l.xid >= '{xmax}'::xid8)
