"""Room: console. What a node shows over HTTP: its health and its figures."""
