"""Room: resolver. Paths to publishers: who publishes what, where it is, and what proves it."""
