-- One light look: where Postgres is, what the table is, and whether anything is behind the snapshot.
select
    pg_current_snapshot()::text as snapshot,
    r.epoch::text as epoch,
    r.cluster,
    i.cluster as cluster_now,
    i.timeline,
    r.relation,
    r.cleared_below::text as cleared_below,
    r.pruned_below::text as pruned_below,
    r.pruned_at::text as pruned_at,
    r.log_limit,
    (
        select md5(string_agg(
            concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation), ',' order by a.attnum
        ))
        from pg_attribute a where a.attrelid = r.relation and a.attnum > 0 and not a.attisdropped
    ) || (
        select coalesce(string_agg(t.relid::oid::text, ',' order by t.relid), '')
        from pg_partition_tree(r.relation) t
    ) as shape,
    -- Partitions that were not made as such: attached by a later transaction than the one that made them.
    (
        select coalesce(string_agg(i.inhrelid::oid::text || ' ' || i.xmin::text, ',' order by i.inhrelid), '')
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        join pg_type y on y.oid = c.reltype
        where i.inhrelid = any (array(select t.relid::oid from pg_partition_tree(r.relation) t)) and i.xmin <> y.xmin
    ) as attached,
    -- The files that rows are in, which TRUNCATE and whatever writes a table anew change; and who last wrote the
    -- descriptions of its columns.
    (
        select string_agg(c.relfilenode::text || c.relpersistence::text, ',' order by c.oid)
        from pg_class c
        where c.oid = r.relation or c.oid = any (array(select t.relid::oid from pg_partition_tree(r.relation) t))
    ) as files,
    (
        select json_object_agg(a.attname, a.xmin::text order by a.attnum)::text
        from pg_attribute a where a.attrelid = r.relation and a.attnum > 0 and not a.attisdropped
    ) as written,
    {log_n} as log_n,
    {has_truncation} as has_truncation,
    {has_changes} as has_changes
from moorline_records.registration r
cross join (
    {identity}
) i
where r.n = {n} and r.name = {name};
