-- Tables that are not ours, nor those of Postgres.
select format('%I.%I', n.nspname, c.relname) as name
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname not in ('moorline', 'pg_catalog', 'information_schema', 'pg_toast')
  and n.nspname not like 'pg\_temp%' and n.nspname not like 'pg\_toast%'
order by 1
