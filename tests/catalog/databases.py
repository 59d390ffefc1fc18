"""Databases of one real Postgres, each for one test: empty, or with the tables of this Moorline."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import asyncpg

from moorline.catalog import Catalog, EmbeddedPostgres


class Addressed(Protocol):
    """A Postgres of any kind."""

    @property
    def dsn(self) -> str: ...


TABLES = "tables"
NUMBERS = itertools.count(1)


@asynccontextmanager
async def shared_postgres(folder: Path) -> AsyncIterator[EmbeddedPostgres]:
    async with EmbeddedPostgres(folder) as postgres:
        await _leave_alone(postgres)
        async with Catalog.open(await _database(postgres, TABLES)):
            pass
        yield postgres


async def empty_database(postgres: Addressed) -> str:
    """The address of a database that no Moorline has seen."""
    return await _database(postgres, f"test_{next(NUMBERS)}")


async def new_database(postgres: EmbeddedPostgres) -> str:
    """The address of one with tables and nothing in them, copied from the first."""
    return await _database(postgres, f"test_{next(NUMBERS)}", template=TABLES)


async def _leave_alone(postgres: EmbeddedPostgres) -> None:
    """Postgres would look into hundreds of databases of tests that are over, several times a second."""
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute("alter system set autovacuum_naptime = '1h'")
        await connection.execute("select pg_reload_conf()")
    finally:
        await connection.close()


async def _database(postgres: Addressed, name: str, template: str = "template1") -> str:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(f"create database {name} template {template}")
    finally:
        await connection.close()
    return postgres.dsn.replace("/postgres?", f"/{name}?")
