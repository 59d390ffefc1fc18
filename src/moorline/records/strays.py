"""Room: records. Children whose owner is not that of their parent: a write in REPEATABLE READ can leave
one."""

from typing import Any

from moorline.records.naming import filled, listed, quoted, sql
from moorline.records.registration import Registration
from moorline.records.table_facts import foreign_key, read_facts

STRAYS = sql("strays")
RESTRAY = sql("restray")


async def has_strays(connection: Any, registration: Registration) -> bool:
    return bool(await connection.fetchval(filled(STRAYS, **await _parts(connection, registration))))


async def mend_strays(connection: Any, registration: Registration) -> None:
    """Whatever is written there, the trigger takes the parent's."""
    parts = await _parts(connection, registration)
    keys = {
        "key_list": listed(registration.key),
        "child_keys": listed(registration.key, "child."),
    }
    await connection.execute(filled(RESTRAY, **parts, **keys))


async def _parts(connection: Any, registration: Registration) -> dict[str, str]:
    child = await read_facts(connection, registration.table)
    table, _, column = (registration.owner_from or "").rpartition(".")
    parent = await read_facts(connection, table)
    child_columns, own_columns = await foreign_key(connection, child, parent)
    pairs = zip(child_columns, own_columns, strict=True)
    return {
        "table": child.name,
        "parent": parent.name,
        "owner_column": quoted(column),
        "fill_matches": " and ".join(
            f"child.{quoted(one)} = parent.{quoted(own)}" for one, own in pairs
        ),
    }
