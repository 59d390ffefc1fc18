"""Room: core/delivery. What a reader was given, what became of it, and how far it is."""
