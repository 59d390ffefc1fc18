-- Not that of a connection that has come to another node since.
update moorline.mqtt_will set due_at = clock_timestamp() + $3 * interval '1 millisecond'
where name = $1 and node = $2
