"""A way to the catalog that can be cut: TCP at one end, the Postgres' unix socket at the other."""

import asyncio
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, urlsplit


class CatalogProxy:
    """What goes to the catalog can be held back, as on a network that delays it, and let go later."""

    def __init__(self, dsn: str) -> None:
        self.held_bytes = 0
        self._parts = urlsplit(dsn)
        query = parse_qs(self._parts.query)
        self._socket = Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}"
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = 0

    @property
    def dsn(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://{self._parts.username}@127.0.0.1:{port}{self._parts.path}"

    @property
    def is_drained(self) -> bool:
        """Whether everything that was held has been passed on and answered."""
        return self._open.is_set() and self._unanswered == 0

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def __aenter__(self) -> "CatalogProxy":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await asyncio.open_unix_connection(str(self._socket))
        waiting = [0]
        try:
            await asyncio.gather(
                self._to_catalog(reader, back, waiting), self._from_catalog(there, writer, waiting)
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._unanswered -= waiting[0]
            writer.close()
            back.close()
            self._tasks.discard(task)

    async def _to_catalog(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: list[int]
    ) -> None:
        while data := await reader.read(65_536):
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
        while data := await reader.read(65_536):
            self._unanswered -= waiting[0]
            waiting[0] = 0
            writer.write(data)
            await writer.drain()
        writer.write_eof()
