create index concurrently {index} on {table} (moor_xid) where moor_xid <> '0';
