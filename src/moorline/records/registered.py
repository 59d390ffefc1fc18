"""Room: records. A registered table as it is now: its registration, its columns, its epoch, the statements
that read it."""

from typing import Any

import msgspec

from moorline.core.records.table import Table
from moorline.errors import TableRefused, TableRestored
from moorline.records.naming import HIDDEN_COLUMNS
from moorline.records.registration import IDENTITY, Registration, registrations
from moorline.records.table_facts import ColumnFacts, TableFacts, read_facts
from moorline.records.table_sql import TableSql


class Registered(msgspec.Struct, frozen=True):
    registration: Registration
    table: Table
    sql: TableSql


async def read_registered(connection: Any, name: str) -> Registered:
    """TableRefused if it is not registered or dropped, TableRestored if it was registered in another
    place."""
    found = await registrations(connection, name)
    if not found:
        raise TableRefused(f"no table is registered as {name} in this database.")
    registration = found[0]
    identity = await connection.fetchrow(IDENTITY)
    if registration.cluster != identity["cluster"]:
        raise TableRestored(
            f"{name} was registered in another cluster or database: `moor records renew {name}`."
        )
    if registration.is_dropped:
        raise TableRefused(
            f"the table of {name}, {registration.table}, is dropped: `moor records remove {name}`."
        )
    facts = await read_facts(connection, registration.table)
    columns = {column.name: column for column in facts.columns}
    for column in (*registration.key, *registration.scopes, "moor_seq", "moor_xid"):
        if column not in columns:
            raise TableRefused(
                f"{registration.table} has no column {column} any more, by which it is registered as {name}."
            )
    table = Table(
        name=name,
        columns=tuple(
            column.described() for column in facts.columns if column.name not in HIDDEN_COLUMNS
        ),
        key=registration.key,
        scopes=registration.scopes,
        has_owner=registration.owner is not None,
        salt=int.from_bytes(registration.salt),
        epoch=epoch_of(registration, identity["timeline"]),
        reach=registration.reach,
    )
    scopes = [columns[column].described() for column in registration.scopes]
    base_types = {column.name: column.base_type for column in facts.columns}
    made = made_column(facts)
    sql = TableSql(registration, table, scopes, base_types, made)
    return Registered(registration, table, sql)


def made_column(facts: TableFacts) -> str:
    """By which rows are found that were put there: with `log`, unless its triggers are of an older
    version."""
    return "moor_made" if facts.column("moor_made") is not None else "moor_xid"


async def read_columns(connection: Any, name: str) -> tuple[ColumnFacts, ...]:
    """Of a table, as Postgres has them now."""
    registered = await read_registered(connection, name)
    return (await read_facts(connection, registered.registration.table)).columns


def epoch_of(registration: Registration, timeline: str) -> str:
    """The registration, the cluster and database, the table, and the timeline: with another of these, no
    snapshot from before says anything."""
    return f"{registration.epoch}/{registration.cluster}/{registration.relation}/{timeline}"
