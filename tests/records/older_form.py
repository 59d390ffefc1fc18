"""A table as version 0.2.0 registered it."""

from pathlib import Path

import asyncpg

from moorline.records.naming import filled, literal
from moorline.records.registration import IDENTITY

STATEMENTS = Path(__file__).parents[1] / "vectors/registered-0.2.0.sql"


async def register_as_0_2_0(connection: asyncpg.Connection) -> None:
    cluster = (await connection.fetchrow(IDENTITY))["cluster"]
    places = {"relation": "'things'::regclass", "cluster": literal(cluster)}
    for statement in STATEMENTS.read_text(encoding="utf-8").split("-- next\n"):
        await connection.execute(filled(statement, **places))
