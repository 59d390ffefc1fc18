"""Room: broker. The shell of the queues: commands in, deliveries out."""
