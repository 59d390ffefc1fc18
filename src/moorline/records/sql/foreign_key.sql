-- The foreign keys of a table ($1) to its parent ($2): columns of both, pair by pair.
select
    array_agg(child.attname::text order by at) as child_columns,
    array_agg(parent.attname::text order by at) as parent_columns
from pg_constraint c
cross join lateral unnest(c.conkey, c.confkey) with ordinality as pair (child_number, parent_number, at)
join pg_attribute child on child.attrelid = c.conrelid and child.attnum = pair.child_number
join pg_attribute parent on parent.attrelid = c.confrelid and parent.attnum = pair.parent_number
where c.contype = 'f' and c.conrelid = $1 and c.confrelid = $2 and c.conparentid = 0
group by c.oid;
