-- The columns of a table in their order.
select
    a.attname as name,
    format_type(a.atttypid, a.atttypmod) as type,
    format_type(coalesce(nullif(t.typbasetype, 0), a.atttypid), null) as base_type,
    a.attnotnull as is_not_null,
    a.attgenerated::text as generated,
    coalesce(co.collisdeterministic, true) as is_deterministic,
    case
        when a.attcollation = 0 then null
        else quote_ident(cn.nspname) || '.' || quote_ident(co.collname)
    end as collation,
    case
        when a.attcollation = 0 then false
        when co.collprovider = 'd' then d.datlocprovider = 'b' or d.datlocprovider = 'c' and d.datcollate in ('C', 'POSIX')
        else co.collprovider = 'b' or co.collprovider = 'c' and co.collcollate in ('C', 'POSIX')
    end as has_c_collation
from pg_attribute a
join pg_type t on t.oid = a.atttypid
left join pg_collation co on co.oid = a.attcollation
left join pg_namespace cn on cn.oid = co.collnamespace
join pg_database d on d.datname = current_database()
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum;
