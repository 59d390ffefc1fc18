"""Room: core/queue. One queue: its behaviour, and which files it has."""
