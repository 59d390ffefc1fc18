"""Room: records. What Postgres says of a table, and why one cannot be registered.

    facts = await read_facts(connection, '"public"."experiments"')
    facts.check(wanted)                     TableRefused, with the reason and what to do

Everything that a trigger would fail on later, in somebody's write, is refused here.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from moorline.core.records.table import Column
from moorline.core.records.value import KEY_TYPES, SCOPE_TYPES, is_key_type, is_scope_type
from moorline.errors import TableRefused
from moorline.limits import RECORD_KEY_COLUMNS_MAX, RECORDS_FILTERS_MAX
from moorline.records.naming import OWN_COLUMNS, full_name, sql

FACTS = sql("facts")
COLUMNS = sql("columns")
UNIQUE_KEYS = sql("unique_keys")
LEAVES = sql("leaves")
FOREIGN_KEY = sql("foreign_key")

KINDS = {
    "v": "a view: register the tables that it reads",
    "m": "a materialized view, which fires no triggers: register the tables that it reads",
    "f": "a foreign table, whose rows change without us: register it where it is",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
    "t": "a part of another table",
}
"""Relations that are no tables, by `relkind`."""


class ColumnFacts(msgspec.Struct, frozen=True):
    name: str
    type: str
    base_type: str
    is_not_null: bool
    generated: str
    is_deterministic: bool
    collation: str | None
    has_c_collation: bool

    def described(self) -> Column:
        return Column(self.name, self.type, self.has_c_collation)


class TableFacts(msgspec.Struct, frozen=True):
    oid: int
    schema_name: str
    table_name: str
    kind: str
    persistence: str
    is_partition: bool
    has_children: bool
    has_parents: bool
    is_ours: bool
    owner_role: str
    encoding: str
    """Of the database."""
    is_system: bool
    columns: tuple[ColumnFacts, ...]
    unique_keys: tuple[frozenset[str], ...]
    leaves: tuple[tuple[int, str, str], ...]
    """The oid, kind and quoted name of each table that holds rows."""

    @property
    def name(self) -> str:
        return full_name(self.schema_name, self.table_name)

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "p"

    def column(self, name: str) -> ColumnFacts | None:
        return next((column for column in self.columns if column.name == name), None)

    def check_table(self) -> None:
        """Whether it can be registered at all."""
        if self.kind not in ("r", "p"):
            self._refuse(f"is {KINDS.get(self.kind, 'no table')}")
        if self.is_system:
            self._refuse("is a table of Postgres' or Moorline's own")
        if self.encoding == "SQL_ASCII":
            self._refuse(
                "is in a database whose encoding is SQL_ASCII, which has bytes and no characters: texts "
                "could not be told to clients; make it anew with the encoding UTF8"
            )
        if self.persistence == "t":
            self._refuse("is a temporary table, which only its own session sees")
        if self.persistence == "u":
            self._refuse(
                "is unlogged: a crash of Postgres empties it without a trace; `alter table … set logged`"
            )
        if self.is_partition:
            self._refuse("is a partition: register the table that it is a part of")
        if self.has_children or self.has_parents:
            self._refuse(
                "inherits, and a query of one table would see rows of another that has no triggers"
            )
        for _, kind, leaf in self.leaves:
            if kind == "f":
                self._refuse(
                    f"has a foreign table as a partition, {leaf}, whose rows change without us"
                )
        if not self.is_ours:
            self._refuse(
                f"is the table of {self.owner_role}: only a member of that role can register it"
            )

    def check_free(self) -> None:
        for name in sorted(OWN_COLUMNS):
            if self.column(name) is not None:
                self._refuse(
                    f"has a column {name} already, which is Moorline's: rename it, or remove what is left"
                )

    def check_key(self, key: Sequence[str]) -> None:
        if not 1 <= len(key) <= RECORD_KEY_COLUMNS_MAX or len(set(key)) != len(key):
            self._refuse(
                f"needs a key of 1 to {RECORD_KEY_COLUMNS_MAX} different columns: --key id"
            )
        for name in key:
            column = self._named(name, "key")
            if not is_key_type(column.described()):
                self._refuse(
                    f"has {column.type} as {name}, which is no key; accepted: {_types(KEY_TYPES)}"
                )
            if not column.is_not_null:
                self._refuse(
                    f"allows {name} to be null, and a key is never: `alter column {name} set not null`"
                )
        if frozenset(key) not in self.unique_keys:
            self._refuse(
                f"has no unique index of exactly ({', '.join(key)}), valid, not deferrable and "
                f"without a condition"
            )

    def check_scopes(self, names: Sequence[str]) -> None:
        """The owner and the filters: how they compare in Postgres is how they compare here, or they are
        refused."""
        if len(names) > RECORDS_FILTERS_MAX or len(set(names)) != len(names):
            self._refuse(f"takes at most {RECORDS_FILTERS_MAX} different columns to filter by")
        for name in names:
            column = self._named(name, "filter")
            if not is_scope_type(column.described()):
                self._refuse(
                    f"has {column.type} as {name}, by which nothing is filtered; accepted: "
                    f"{_types(SCOPE_TYPES)}"
                )

    def _named(self, name: str, use: str) -> ColumnFacts:
        column = self.column(name)
        if column is None:
            self._refuse(
                f"has no column {name}; it has {', '.join(one.name for one in self.columns)}"
            )
        if column.generated:
            self._refuse(f"generates {name}, and triggers do not see it: no {use}")
        if not column.is_deterministic:
            self._refuse(
                f"has {name} in a collation that is not deterministic, by which different texts are "
                f"equal: no {use}"
            )
        return column

    def _refuse(self, why: str) -> NoReturn:
        raise TableRefused(f"{self.name} {why}.")


async def read_facts(connection: Any, table: str) -> TableFacts:
    """Of a table as SQL names it, or of its oid as text. TableRefused if there is none."""
    row = await connection.fetchrow(FACTS, table)
    if row is None:
        raise TableRefused(
            f"there is no table {table}: name it as in SQL, with its schema if it is not in the search path."
        )
    oid = row["oid"]
    columns = await connection.fetch(COLUMNS, oid)
    keys = await connection.fetch(UNIQUE_KEYS, oid)
    leaves = await connection.fetch(LEAVES, oid) if row["kind"] in ("r", "p") else []
    return TableFacts(
        **dict(row),
        columns=tuple(ColumnFacts(**dict(column)) for column in columns),
        unique_keys=tuple(frozenset(key["columns"]) for key in keys),
        leaves=tuple(
            (leaf["relation"], leaf["kind"], full_name(leaf["schema_name"], leaf["table_name"]))
            for leaf in leaves
            if leaf["kind"] != "p"
        ),
    )


async def foreign_key(
    connection: Any, child: TableFacts, parent: TableFacts
) -> tuple[list[str], list[str]]:
    """The columns of the child and of the parent, by the one foreign key between them."""
    rows = await connection.fetch(FOREIGN_KEY, child.oid, parent.oid)
    if len(rows) != 1:
        raise TableRefused(
            f"{child.name} has {len(rows) or 'no'} foreign keys to {parent.name}: with one, its "
            f"rows have one parent each."
        )
    return rows[0]["child_columns"], rows[0]["parent_columns"]


def _types(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
