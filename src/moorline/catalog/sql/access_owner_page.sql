-- Everybody who owns something in the catalog, and every old name that was given a principal.
select owned.name, coalesce(o.principal, '') as principal,
       sum(owned.sessions)::bigint as sessions, sum(owned.groups)::bigint as groups
from (
    select s.owner as name, count(*) as sessions, 0 as groups from moorline.session s group by 1
    union all
    select g.owner, 0, count(*) from moorline.shared_group g group by 1
    union all
    select known_as, 0, 0 from moorline.access_owner
) owned
left join moorline.access_owner o on o.known_as = owned.name
where owned.name collate "C" > $1
group by owned.name, o.principal
order by owned.name collate "C"
limit $2
