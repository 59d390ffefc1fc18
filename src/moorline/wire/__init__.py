"""Room: wire. Messages to bytes and back: incremental, bounded, and without any IO."""
