-- One that was renewed before is not taken any more: there are two at most.
update moorline.access_state set
    secret_before = secret,
    secret_before_until = clock_timestamp() + $2::bigint * interval '1 millisecond',
    secret = $1
