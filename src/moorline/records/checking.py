"""Room: records. Whether a registered table still is what its registration says.

A fault is something that must be mended, or clients would hold what is not there; each says what mends it.
One that does no harm is told as well: the table is served as it should be.
"""

from typing import Any

import msgspec

from moorline.errors import TableRefused
from moorline.records.naming import full_name, sql
from moorline.records.registered import made_column, read_registered
from moorline.records.registration import IDENTITY, Registration, registrations
from moorline.records.strays import has_strays
from moorline.records.table_facts import TableFacts, read_facts
from moorline.records.table_reader import take_look

TRIGGERS = sql("triggers")
INDEXES = sql("indexes")

ALWAYS = "A"
ENABLED = {
    "D": "is disabled",
    "O": "was disabled, or the table restored",
    "R": "fires for replicas only",
}
"""What `tgenabled` says of a trigger that should be there always."""


class Fault(msgspec.Struct, frozen=True):
    code: str
    text: str
    is_harm: bool = True


async def check(connection: Any, name: str) -> list[Fault]:
    """Nothing, if all is well. TableRefused if no table is registered under that name."""
    found = await registrations(connection, name)
    if not found:
        raise TableRefused(f"no table is registered as {name} in this database.")
    registration = found[0]
    renew = f"`moor records renew {name}`"
    identity = await connection.fetchrow(IDENTITY)
    if registration.cluster != identity["cluster"] or (
        registration.is_dropped and await _is_there(connection, registration)
    ):
        return [
            Fault(
                "restored", f"it comes from another cluster or a dump, and is not served: {renew}"
            )
        ]
    if registration.is_dropped:
        text = f"{registration.table} is dropped: `moor records remove {name}`"
        return [Fault("dropped", text)]
    facts = await read_facts(connection, registration.table)
    faults = _column_faults(registration, facts)
    if faults:
        return faults
    faults += await trigger_faults(connection, registration, facts)
    faults += await _index_faults(connection, registration, facts)
    faults += _form_faults(registration, facts)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        faults += await _content_faults(connection, registration)
    return faults


def _column_faults(registration: Registration, facts: TableFacts) -> list[Fault]:
    again = f"`moor records remove {registration.name}`, and add it again"
    for column in ("moor_seq", "moor_xid", *registration.key, *registration.scopes):
        if facts.column(column) is None:
            return [
                Fault(
                    "column",
                    f"{facts.name} has no column {column} any more, and is not served: {again}",
                )
            ]
    try:
        facts.check_key(registration.key)
        facts.check_scopes(registration.scopes)
    except TableRefused as error:
        return [Fault("column", f"{error} It could not be registered like this: {again}")]
    return []


def is_of_older_form(registration: Registration, facts: TableFacts) -> bool:
    return registration.capture == "log" and facts.column("moor_made") is None


def expected_triggers(registration: Registration, facts: TableFacts) -> set[tuple[int, str]]:
    """The relations and names of all triggers that a table needs."""
    kinds = {
        "log": ("zzz_moorline_log_delete",),
        "notify": (
            "zzz_moorline_notify",
            "zzz_moorline_notify_delete",
            "zzz_moorline_notify_insert",
        ),
    }
    rows = ["zzz_moorline_stamp", *kinds[registration.capture]]
    if is_of_older_form(registration, facts):
        rows.append("zzz_moorline_log")
    if registration.owner_from is not None:
        rows.append("zzz_moorline_owner")
    relations = {facts.oid, *(leaf for leaf, _, _ in facts.leaves)}
    needed = {(relation, name) for relation in relations for name in rows}
    needed |= {(leaf, "zzz_moorline_truncate") for leaf, _, _ in facts.leaves}
    if registration.parent is not None:
        needed.add((registration.parent, f"zzz_moorline_moved_{registration.n}"))
    return needed


async def trigger_faults(
    connection: Any, registration: Registration, facts: TableFacts
) -> list[Fault]:
    needed = expected_triggers(registration, facts)
    rows = await connection.fetch(TRIGGERS, sorted({relation for relation, _ in needed}))
    there = {(row["relation"], row["name"]): row for row in rows}
    name, faults = registration.name, []
    for relation, trigger in sorted(needed):
        row = there.get((relation, trigger))
        if row is None:
            mend = "renew" if trigger == "zzz_moorline_truncate" else "remove"
            again = "" if mend == "renew" else ", and add it again"
            text = f"the trigger {trigger} is missing from a table: `moor records {mend} {name}`{again}"
            faults.append(Fault("trigger", text))
        elif row["enabled"] != ALWAYS:
            text = (
                f"the trigger {trigger} of {row['table']} {ENABLED[row['enabled']]}: rows may have "
                f"changed without a "
                f"trace; `moor records renew {name} --touch`"
            )
            faults.append(Fault("bypassed", text))
    return faults


def _form_faults(registration: Registration, facts: TableFacts) -> list[Fault]:
    if not is_of_older_form(registration, facts):
        return []
    text = (
        "its triggers are of an older version, whose updates write to every index of the table: "
        f"`moor records remove {registration.name}`, and add it again, once all nodes are of this one"
    )
    return [Fault("form", text, is_harm=False)]


async def _index_faults(
    connection: Any, registration: Registration, facts: TableFacts
) -> list[Fault]:
    if registration.capture != "log":
        return []
    leaves = {leaf: table for leaf, _, table in facts.leaves}
    made = made_column(facts)
    has_index = {row["relation"] for row in await connection.fetch(INDEXES, list(leaves), made)}
    return [
        Fault(
            "index",
            f"{table} has no valid index on {made}, and every look reads it all: "
            f"`create index concurrently on {table} ({made}) where {made} <> '0'`",
        )
        for leaf, table in leaves.items()
        if leaf not in has_index
    ]


async def _content_faults(connection: Any, registration: Registration) -> list[Fault]:
    name = registration.name
    registered = await read_registered(connection, name)
    look = await take_look(connection, name, registered, None)
    faults = []
    if await connection.fetchval(registered.sql.future(look.snapshot)):
        text = "it has rows of transactions that are still to come, as a restored dump has, and is not served"
        faults.append(Fault("restored", f"{text}: `moor records renew {name}`"))
    if not look.is_log_whole:
        text = (
            "its log has passed its bound, since no node read it: the next node begins it anew, "
            "all clients resync"
        )
        faults.append(Fault("log", text))
    if registration.owner_from is not None and await has_strays(connection, registration):
        text = f"rows have another owner than their parent: `moor records renew {name}`"
        faults.append(Fault("owner", text))
    return faults


async def _is_there(connection: Any, registration: Registration) -> bool:
    """A table of the same name, which is not the one that was registered."""
    name = full_name(registration.schema_name, registration.table_name)
    return bool(await connection.fetchval("select to_regclass($1) is not null", name))
