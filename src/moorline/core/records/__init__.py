"""Room: core/records. What a node and a client decide about the rows of Postgres tables."""
