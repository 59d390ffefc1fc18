update moorline.mqtt_will set due_at = clock_timestamp() where name = $1 and node = $2
