-- The cluster in four figures. Clocks are compared of those nodes alone that live: of others nobody knows.
select count(*) as nodes,
       count(*) filter (where n.is_alive) as alive,
       count(distinct n.version) filter (where n.is_alive) as versions,
       coalesce(max(n.clock_ahead_ms) filter (where n.is_alive) - min(n.clock_ahead_ms) filter (where n.is_alive), 0)
           as clocks_apart_ms
from (
    select known.*, known.seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond' as is_alive
    from moorline.node known
) n
