"""A table as the tests of records have it."""

from moorline.core.records.table import Column, Table

TABLE = Table(
    name="runs",
    columns=(
        Column("id", "bigint"),
        Column("workspace", "integer"),
        Column("state", "text"),
        Column("size", "numeric(10,2)"),
        Column("name", "text", has_c_collation=True),
        Column("note", "text"),
    ),
    key=("id",),
    scopes=("workspace", "state", "size", "name"),
    has_owner=True,
    salt=0x5EED,
    epoch="e1",
)
