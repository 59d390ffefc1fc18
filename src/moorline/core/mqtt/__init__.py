"""Room: core/mqtt. What passes between an MQTT client and a node, and the machines of both its sides."""
