-- Renewed also when it is over, as long as nobody else has claimed the identity: the incarnation says so.
update moorline.node set
    lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond',
    seen_at = case when $4 then clock_timestamp() else seen_at end
where id = $1 and incarnation = $2
returning true
