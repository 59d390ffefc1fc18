"""Room: records. A registration made good again: behind a restored dump, another cluster, or writes
without triggers.

Rows first, then the registration: a table with a new epoch is served, and must be right by then. What is
cut short is done again.
"""

from typing import Any

import msgspec

from moorline.errors import TableRefused
from moorline.limits import RECORDS_LOCK_MS, RECORDS_RENEW_ROWS_MAX
from moorline.records.checking import ALWAYS, TRIGGERS, expected_triggers
from moorline.records.definition import TRUNCATE
from moorline.records.naming import filled, literal, quoted, sql
from moorline.records.registered import made_column
from moorline.records.registration import IDENTITY, Registration, locked, registrations
from moorline.records.strays import has_strays, mend_strays
from moorline.records.table_facts import TableFacts, read_facts

RENEW_ROWS = sql("renew_rows")
TOUCH_ROWS = sql("touch_rows")
RENEW_REGISTRATION = sql("renew_registration")
RENEW_SEQ = sql("renew_seq")
RENEW_LOG = sql("renew_log")
ENABLE_TRIGGER = sql("enable_trigger")
SEQ_LAST = sql("seq_last")


class Renewed(msgspec.Struct, frozen=True):
    name: str
    rows: int
    """Rows of transactions that were still to come."""
    touched: int
    """Rows that got a new number."""


async def renew(
    connection: Any, name: str, *, lock_ms: int = RECORDS_LOCK_MS, is_touching: bool = False
) -> Renewed:
    """Gives a table a new epoch: everybody resyncs. With `is_touching` each row that may have been written
    without triggers gets a new number, and is sent again."""
    found = await registrations(connection, name)
    if not found:
        raise TableRefused(f"no table is registered as {name} in this database.")
    registration = found[0]
    facts = await _facts(connection, registration)

    async def prepare() -> None:
        await _enable(connection, registration, facts)
        await connection.execute(filled(RENEW_SEQ, n=registration.n, table=facts.name))

    await locked(connection, prepare, lock_ms)
    rows = 0
    for column in sorted({made_column(facts), "moor_xid"}):
        rows += await _each_leaf(connection, facts, RENEW_ROWS, column=column)
    touched = await _touch(connection, registration, facts) if is_touching else 0

    async def finish() -> None:
        cluster = (await connection.fetchrow(IDENTITY))["cluster"]
        if registration.capture == "log":
            await connection.execute(filled(RENEW_LOG, n=registration.n))
        parent = await _parent_oid(connection, registration)
        text = filled(
            RENEW_REGISTRATION,
            n=registration.n,
            relation=facts.oid,
            parent=parent,
            cluster=literal(cluster),
        )
        await connection.execute(text)
        if registration.owner_from is not None and await has_strays(connection, registration):
            await mend_strays(connection, registration)

    await locked(connection, finish, lock_ms)
    return Renewed(name, rows, touched)


async def _facts(connection: Any, registration: Registration) -> TableFacts:
    """Of the table of that name: in a dump that was restored its oid is another one."""
    facts = await read_facts(connection, registration.table)
    for column in ("moor_seq", "moor_xid", *registration.key, *registration.scopes):
        if facts.column(column) is None:
            raise TableRefused(
                f"{facts.name} has no column {column}: `moor records remove {registration.name}`, "
                f"and add it again."
            )
    return facts


async def _parent_oid(connection: Any, registration: Registration) -> str:
    if registration.owner_from is None:
        return "null"
    table = registration.owner_from.rpartition(".")[0]
    return str((await read_facts(connection, table)).oid)


async def _enable(connection: Any, registration: Registration, facts: TableFacts) -> None:
    """Triggers as they should be; those of partitions that came later are made."""
    there = {
        (row["relation"], row["name"]): row
        for row in await connection.fetch(
            TRIGGERS, [facts.oid, *(leaf for leaf, _, _ in facts.leaves)]
        )
    }
    needed = expected_triggers(msgspec.structs.replace(registration, parent=None), facts)
    leaves = {leaf: table for leaf, _, table in facts.leaves}
    for relation, trigger in sorted(needed):
        row = there.get((relation, trigger))
        if row is None and trigger == "zzz_moorline_truncate":
            await connection.execute(filled(TRUNCATE, leaf=leaves[relation], n=registration.n))
        elif row is None:
            raise TableRefused(
                f"the trigger {trigger} is missing: `moor records remove {registration.name}`, and "
                f"add it again."
            )
        elif row["enabled"] != ALWAYS:
            await connection.execute(
                filled(ENABLE_TRIGGER, table=row["table"], trigger=quoted(trigger))
            )


async def _touch(connection: Any, registration: Registration, facts: TableFacts) -> int:
    # Up to now: what is written from here on has met the triggers.
    seq_max = await connection.fetchval(filled(SEQ_LAST, n=registration.n))
    upto = await connection.fetchval("select pg_snapshot_xmax(pg_current_snapshot())::text")
    return await _each_leaf(connection, facts, TOUCH_ROWS, seq_max=seq_max, upto=upto)


async def _each_leaf(connection: Any, facts: TableFacts, template: str, **parts: object) -> int:
    """In transactions of some rows, so that nobody waits for long."""
    total = 0
    for _, _, leaf in facts.leaves:
        text = filled(template, leaf=leaf, rows_max=RECORDS_RENEW_ROWS_MAX, **parts)
        while count := int((await connection.execute(text)).split()[-1]):
            total += count
    return total
