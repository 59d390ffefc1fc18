-- Our triggers of a table and of the tables that hold its rows.
select
    c.oid as relation,
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) as table,
    t.tgname as name,
    t.tgenabled::text as enabled
from pg_trigger t
join pg_class c on c.oid = t.tgrelid
join pg_namespace n on n.oid = c.relnamespace
where t.tgrelid = any ($1::oid[]) and t.tgname like 'zzz\_moorline\_%';
