"""A catalog whose statements all go over one connection, and join the transaction that it is in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from moorline.catalog import Catalog


class OneConnection(Catalog):
    def __init__(self, dsn: str, connection: asyncpg.pool.PoolConnectionProxy) -> None:
        super().__init__(dsn, None)
        self._only = connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy]:
        yield self._only
