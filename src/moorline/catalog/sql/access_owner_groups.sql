with held as materialized (
    select number from moorline.shared_group where owner = $1 order by number for no key update
), mapped as (
    update moorline.shared_group g set owner = $2 from held where g.number = held.number returning g.number
)
select count(*) from mapped
