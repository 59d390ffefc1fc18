-- Whether there is a row, or a line, of a transaction that has not begun.
select exists (select from {table} t where t.moor_xid <> '0' and t.moor_xid >= '{xmax}'::xid8) or {has_lines};
