"""Room: client/records. A live copy of the rows of a Postgres table, as a user of the library sees it."""
