-- How far our sequences have come, and how far they can.
select sequencename::text as name, coalesce(last_value, 0) as last_value, max_value
from pg_sequences where schemaname = 'moorline'
order by sequencename
