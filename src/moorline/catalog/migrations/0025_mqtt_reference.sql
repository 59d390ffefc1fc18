-- Where clients of MQTT are sent when this node is to serve them (HOST:PORT, mqtt_reference): written with its addresses.
-- Empty: nobody is sent here.
alter table moorline.node add column mqtt_reference text not null default '';
