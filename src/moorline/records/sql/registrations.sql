-- All registered tables, or the one of a name, with what Postgres has of them now.
select
    r.n, r.name, r.relation, r.schema_name, r.table_name, r.key, r.owner, r.owner_from, r.parent, r.filters, r.capture,
    r.salt, r.epoch::text as epoch, r.cluster, r.cleared_below::text as cleared_below,
    r.pruned_below::text as pruned_below, r.pruned_at::text as pruned_at, r.log_rows_max, r.log_limit,
    n.nspname as schema_now, c.relname as table_now
from moorline_records.registration r
left join pg_class c on c.oid = r.relation
left join pg_namespace n on n.oid = c.relnamespace
where $1::text is null or r.name = $1
order by r.name;
