"""A way to the catalog that can be cut: TCP at one end, the Postgres' unix socket at the other."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chaos.proxy import CHUNK_BYTES, Proxy


class CatalogProxy(Proxy):
    """What goes to the catalog can be held back, as on a network that delays it, and let go later."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.held_bytes = 0
        self._parts = urlsplit(dsn)
        query = parse_qs(self._parts.query)
        self._socket = Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}"
        self._unanswered = 0

    @property
    def dsn(self) -> str:
        return f"postgresql://{self._parts.username}@127.0.0.1:{self.port}{self._parts.path}"

    @property
    def is_drained(self) -> bool:
        """Whether everything that was held has been passed on and answered."""
        return self._open.is_set() and self._unanswered == 0

    async def _behind(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self._socket))

    async def _join(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        waiting = [0]
        try:
            await asyncio.gather(
                self._to_catalog(near[0], far[1], waiting),
                self._from_catalog(far[0], near[1], waiting),
            )
        finally:
            self._unanswered -= waiting[0]

    async def _to_catalog(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: list[int]
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if not self._open.is_set():
                self.held_bytes += len(data)
                self._unanswered += 1 - waiting[0]
                waiting[0] = 1
                await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _from_catalog(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: list[int]
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            self._unanswered -= waiting[0]
            waiting[0] = 0
            writer.write(data)
            await writer.drain()
        writer.write_eof()
