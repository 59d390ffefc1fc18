"""Room: mqtt. Kept free for the MQTT 5 and 3.1.1 listener."""
