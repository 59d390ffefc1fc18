-- A page of all homes, by their names, each with the node that has it and its last move.
select h.name, h.number, coalesce(n.name, '') as node, coalesce(n.addresses, '{}') as addresses, h.moves,
       coalesce(n.seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond', false) as is_alive,
       coalesce(m.state, '') as move_state, coalesce(t.name, '') as move_to, coalesce(m.problem, '') as move_text,
       coalesce(m.files, 0) as move_files, coalesce(m.bytes, 0) as move_bytes,
       coalesce(m.bytes_copied, 0) as move_bytes_copied, coalesce(m.hash, '') as move_hash,
       coalesce(1000 * extract(epoch from coalesce(m.opened_at, clock_timestamp()) - m.closed_at), 0)::bigint
           as standstill_ms
from moorline.home h
left join moorline.node n on n.id = h.node
left join moorline.home_move m on m.home = h.number
left join moorline.node t on t.id = m.target
where h.name > $2
order by h.name
limit $3
