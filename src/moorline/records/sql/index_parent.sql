-- Takes the indexes of the partitions over, which are there, and gives one to each partition to come.
create index {index} on {table} (moor_made) where moor_made <> '0';
