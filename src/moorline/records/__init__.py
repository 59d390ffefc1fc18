"""Room: records. Kept free for the rows of Postgres tables, streamed to clients."""
