-- Which of our tables names rows of which other.
select one.relname::text as one, other.relname::text as other
from pg_constraint k
join pg_class one on one.oid = k.conrelid
join pg_class other on other.oid = k.confrelid
where k.contype = 'f' and one.relnamespace = 'moorline'::regnamespace
