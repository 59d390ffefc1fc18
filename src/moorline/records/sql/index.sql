create index concurrently {index} on {table} (moor_made) where moor_made <> '0';
