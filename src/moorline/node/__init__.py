"""Room: node. One running server: its start, its roles, its stop, and what it says meanwhile."""
