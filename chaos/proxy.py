"""Ways that can be cut: a listening port on loopback, and what is behind it."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536


class Proxy:
    """A port that stays, behind which everything can be held back; what is behind it, a subclass says."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._pairs: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def hold(self) -> None:
        """Nothing passes and nobody is told, as on a network that is away."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Self:
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
        tasks = list(self._pairs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs[task] = [writer]
        try:
            found = await self._behind()
            if found is not None:
                self._pairs[task].append(found[1])
                await self._join((reader, writer), found)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in self._pairs.pop(task):
                one.close()

    async def _behind(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to what is behind; None lets nobody in."""
        raise NotImplementedError

    async def _join(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Passes both ways until one end is gone."""
        raise NotImplementedError


class LinkProxy(Proxy):
    """TCP at both ends, to a target that may move: the port that a node has since its last start."""

    def __init__(self) -> None:
        super().__init__()
        self.target: int | None = None
        self._is_closed = False

    def drop(self) -> None:
        """Every connection ends at once, and none is let in."""
        self._is_closed = True
        for writers in self._pairs.values():
            for writer in writers:
                writer.transport.abort()

    def heal(self) -> None:
        self._is_closed = False
        self.release()

    async def _behind(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        if self._is_closed or self.target is None:
            return None
        return await asyncio.open_connection("127.0.0.1", self.target)

    async def _join(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        ways = [
            asyncio.ensure_future(self._pass(near[0], far[1])),
            asyncio.ensure_future(self._pass(far[0], near[1])),
        ]
        try:
            # One end that is gone is the end of both: neither side may wait for a dead one.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
            # What is on its way still arrives, such as a goodbye.
            await writer.drain()
