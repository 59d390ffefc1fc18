-- A connection that has come since has its own, which is not due.
delete from moorline.mqtt_will where name = any($1::text[]) and node = $2 and due_at is not null
