-- The index goes with its column.
alter table {table}
    drop column if exists moor_seq,
    drop column if exists moor_xid,
    drop column if exists moor_made,
    drop column if exists moor_owner;
