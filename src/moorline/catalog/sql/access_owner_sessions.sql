-- Held in the order that all keep.
with held as materialized (
    select name from moorline.session where owner = $1 order by name for no key update
), mapped as (
    update moorline.session s set owner = $2 from held where s.name = held.name returning s.name
)
select count(*) from mapped
