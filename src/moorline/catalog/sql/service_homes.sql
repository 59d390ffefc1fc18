-- All homes at which a service has a part, by what is there or by what is kept.
select found.home from moorline.service_homes($1) as found (home)
union
select b.home from moorline.service_bucket b where b.service = $1
order by home
