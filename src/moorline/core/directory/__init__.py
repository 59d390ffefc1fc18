"""Room: core/directory. The resolver's tree of paths, and the machines of those who ask it and tell it."""
