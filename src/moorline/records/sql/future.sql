-- Whether there is a row, or a line, of a transaction that has not begun.
select exists (select from {table} t where t.{made} <> '0' and t.{made} >= '{xmax}'::xid8) or {has_lines};
