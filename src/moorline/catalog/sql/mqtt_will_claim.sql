-- Nobody else publishes it meanwhile; if this node is lost before it has, it is due again.
update moorline.mqtt_will set due_at = clock_timestamp() + $3 * interval '1 millisecond'
where name = $1 and node = $2 returning name
