insert into moorline.access_token (hash, owner, label, expires_at, version)
values (
    $1, $2, $3, clock_timestamp() + $4::bigint * interval '1 second',
    moorline.access_changed('token', $2, encode($1, 'hex'), false, $5)
)
returning (extract(epoch from expires_at) * 1000000)::bigint as expires_us
