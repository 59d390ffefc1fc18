"""A link that can be cut: TCP on loopback at both ends, to a target that may move."""

import asyncio
import contextlib
from types import TracebackType

CHUNK_BYTES = 65_536


class LinkProxy:
    """One listening port that stays; behind it the port that a node has since its last start."""

    def __init__(self) -> None:
        self.target: int | None = None
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._is_closed = False
        self._pairs: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def drop(self) -> None:
        """Every connection ends at once, and none is let in."""
        self._is_closed = True
        for writers in self._pairs.values():
            for writer in writers:
                writer.transport.abort()

    def hold(self) -> None:
        """Nothing passes and nobody is told, as on a network that is away."""
        self._open.clear()

    def heal(self) -> None:
        self._is_closed = False
        self._open.set()

    async def __aenter__(self) -> "LinkProxy":
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
        for task in self._pairs:
            task.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._pairs[task] = [writer]
        try:
            if self._is_closed or self.target is None:
                return
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            writers.append(back)
            ways = [
                asyncio.ensure_future(self._pass(reader, back)),
                asyncio.ensure_future(self._pass(there, writer)),
            ]
            try:
                # One end that is gone is the end of both: neither side may wait for a dead one.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass
        except asyncio.CancelledError:
            pass
        finally:
            for one in writers:
                one.close()
            self._pairs.pop(task, None)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
            # What is on its way still arrives, such as a goodbye.
            await writer.drain()
