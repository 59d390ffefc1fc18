"""Room: demo. One story on a node of its own, played with what every user has: `moor demo`."""
