"""Postgres goes while it works on a statement: somebody waits for its answer, and nobody can give it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

ENDED = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
    "where datname = current_database() and wait_event_type = 'Lock'"
)


@asynccontextmanager
async def lost_at(dsn: str, table: str, *, mode: str = "share") -> AsyncIterator[None]:
    """Whoever changes that table meanwhile loses its connection before it is answered.

    With the mode `access exclusive` also whoever reads it.
    """
    holding, ending = await asyncpg.connect(dsn), await asyncpg.connect(dsn)

    async def end_who_waits() -> None:
        while True:
            await ending.fetchval(ENDED)
            await asyncio.sleep(0.01)

    try:
        async with holding.transaction():
            await holding.execute(f"lock table moorline.{table} in {mode} mode")
            task = asyncio.create_task(end_who_waits())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])
    finally:
        ending.terminate()
        await holding.close()
