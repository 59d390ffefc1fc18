-- A page of the homes behind the one that is named, with the part of a service at each; and the part that has no home.
select h.number as home, h.name, h.node as node_id, coalesce(n.name, '') as node, coalesce(n.addresses, '{}') as addresses,
       coalesce(n.seen_at > clock_timestamp() - $3::bigint * interval '1 millisecond', false) as is_alive,
       coalesce(p.count, 0)::bigint as count, coalesce(p.high, 0) as high, coalesce(p.low, 0) as low
from (
    select known.number, known.name, known.node from moorline.home known where known.number > $2
    union all
    select kept.home, '', ''::bytea from moorline.service_bucket kept
    where kept.service = $1 and kept.home > $2 and kept.count <> 0
      and not exists (select from moorline.home other where other.number = kept.home)
    group by kept.home
) h
left join moorline.node n on n.id = h.node
left join lateral (
    select sum(b.count) as count, bit_xor(b.hash_high) as high, bit_xor(b.hash_low) as low
    from moorline.service_bucket b where b.service = $1 and b.home = h.number
) p on true
order by h.number limit $4
