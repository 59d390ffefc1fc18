-- All homes at which a service has a part, by what is kept or by what is there. The second goes from home to home over the
-- index, and reads no associations in between.
with recursive there as (
    (select a.home from moorline.association a where a.service = $1 order by a.home limit 1)
    union all
    select (
        select a.home from moorline.association a where a.service = $1 and a.home > t.home order by a.home limit 1
    ) from there t where t.home is not null
)
select home from there where home is not null
union
select b.home from moorline.service_bucket b where b.service = $1
order by home
