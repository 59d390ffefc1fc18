-- What a relation is; no row if there is none of that name.
select
    c.oid,
    n.nspname as schema_name,
    c.relname as table_name,
    c.relkind::text as kind,
    c.relpersistence::text as persistence,
    c.relispartition as is_partition,
    c.relhassubclass and c.relkind = 'r' and exists (
        select from pg_inherits i where i.inhparent = c.oid
    ) as has_children,
    exists (select from pg_inherits i where i.inhrelid = c.oid) and not c.relispartition as has_parents,
    pg_has_role(c.relowner, 'USAGE') as is_ours,
    pg_get_userbyid(c.relowner) as owner_role,
    getdatabaseencoding()::text as encoding,
    n.nspname in ('pg_catalog', 'information_schema', 'moorline_records', 'moorline') as is_system
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass($1);
