-- All homes with the nodes that have them now; a node may be gone from the catalog, and its home stays.
select h.number, h.name, h.node as node_id, coalesce(n.name, '') as node, coalesce(n.addresses, '{}') as addresses,
       coalesce(n.seen_at > clock_timestamp() - $1::bigint * interval '1 millisecond', false) as is_alive,
       h.exceptions_digest <> '' as has_exceptions
from moorline.home h
left join moorline.node n on n.id = h.node
