-- Renewed also when it is over, as long as nobody else has claimed the identity: the incarnation says so.
-- The catalog's clock comes back, so that the node can tell how far its own is from it.
update moorline.node set
    lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
    seen_at = case when $4 then clock_timestamp() else seen_at end,
    clock_ahead_ms = coalesce($5::bigint, clock_ahead_ms)
where id = $1 and incarnation = $2
returning (extract(epoch from clock_timestamp()) * 1000000)::bigint
