-- The tables that have a valid index of ours.
select i.indrelid as relation
from pg_index i
join pg_attribute a on a.attrelid = i.indrelid and a.attname = $2
where i.indrelid = any ($1::oid[]) and i.indkey[0] = a.attnum and i.indisvalid;
