-- Not that of a connection that has come to another node since.
delete from moorline.mqtt_will where name = $1 and node = $2
