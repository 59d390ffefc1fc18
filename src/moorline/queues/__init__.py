"""Room: queues. The shell of the queues: commands in, deliveries out."""
