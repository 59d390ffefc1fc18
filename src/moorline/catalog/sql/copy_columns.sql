-- The columns of all our tables that hold what was written: not those that Postgres computes.
select c.relname::text as table_name, a.attname::text as column_name
from pg_class c
join pg_attribute a on a.attrelid = c.oid
where c.relnamespace = 'moorline'::regnamespace and c.relkind = 'r'
  and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by c.relname, a.attnum
