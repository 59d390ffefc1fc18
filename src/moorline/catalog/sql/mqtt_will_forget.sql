delete from moorline.mqtt_will where name = $1 returning name
