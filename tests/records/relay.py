"""A way to a node that can be cut, and lead to another one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

NOWHERE = 1
"""A port at which nobody listens."""


class Relay:
    """The way to a node that clients go by: it can be cut, and lead to another one."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self.bytes = 0
        """Both ways."""
        self._links: set[asyncio.Task[None]] = set()
        self._spared: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def lead_to(self, address: str) -> None:
        self.target = int(address.rpartition(":")[2])

    def spare(self) -> None:
        """The links of now go on when others are cut, and are not counted any more."""
        self._spared |= self._links

    def cut(self) -> None:
        for link in self._links - self._spared:
            link.cancel()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Relay"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._spared.clear()
            self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass_on(task, reader, far_writer))
                    group.create_task(self._pass_on(task, far_reader, writer))
            except* OSError:
                pass
            finally:
                far_writer.transport.abort()
        writer.transport.abort()
        self._links.discard(task)

    async def _pass_on(
        self, link: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65_536):
            if link not in self._spared:
                self.bytes += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
