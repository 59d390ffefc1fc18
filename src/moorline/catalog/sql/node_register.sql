update moorline.node set
    roles = $3,
    addresses = $4,
    http = $5,
    version = $6,
    shards = $7,
    mqtt_reference = $8,
    seen_at = clock_timestamp()
where id = $1 and incarnation = $2
returning true
