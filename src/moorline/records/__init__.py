"""Room: records. Tables of Postgres, whose rows are streamed to clients: registration, capture."""
