"""Room: staging. Staged writes: rows that wait at a node until the commit of their batch."""
