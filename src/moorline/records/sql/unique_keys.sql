-- The columns of each unique index that holds for every row at once.
select array_agg(a.attname::text) as columns
from pg_index i
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey[0:i.indnkeyatts - 1])
where
    i.indrelid = $1
    and i.indisunique and i.indisvalid and i.indimmediate
    and i.indpred is null and i.indexprs is null
group by i.indexrelid;
