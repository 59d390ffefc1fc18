-- The tables that hold the rows: the partitions without partitions, or the table itself.
select c.oid as relation, c.relkind::text as kind, n.nspname as schema_name, c.relname as table_name
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where
    c.oid in (select relid from pg_partition_tree($1::oid::regclass) where isleaf)
    or c.oid = $1 and c.relkind = 'r'
order by c.oid;
