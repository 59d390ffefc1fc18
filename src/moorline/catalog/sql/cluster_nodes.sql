-- A page of the nodes that ever started, by their homes, behind the one that is named; with all that each has now.
select n.home, n.name, n.id, n.roles, n.addresses, coalesce(n.http, '') as http, n.version, n.clock_ahead_ms,
       (extract(epoch from n.started_at) * 1000000)::bigint as started_us,
       case when isfinite(n.seen_at)
           then greatest(0, extract(epoch from clock.now - n.seen_at) * 1000)::bigint
       end as silent_ms,
       n.seen_at > clock.now - $1::bigint * interval '1 millisecond' as is_alive,
       coalesce(had.homes, '{}') as homes, coalesce(had.count, 0) as homes_count,
       coalesce(led.count, 0) as groups_led
from moorline.node n
cross join (select clock_timestamp() as now) as clock
left join lateral (
    select count(*) as count, (array_agg(h.name order by h.name))[:$4::integer] as homes
    from moorline.home h where h.node = n.id
) had on true
left join (
    select s.leader, count(*) as count from moorline.group_state s where s.leader <> '' group by s.leader
) led on led.leader = n.home
where n.home > $2
order by n.home
limit $3
