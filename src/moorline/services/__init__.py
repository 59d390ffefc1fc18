"""Room: services. Services: one identity that has the messages of very many queues, and cannot drift."""
