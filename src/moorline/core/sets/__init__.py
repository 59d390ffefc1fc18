"""Room: core/sets. Sets of ids, their digests, and making two of them equal."""
