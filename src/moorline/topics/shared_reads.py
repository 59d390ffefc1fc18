"""Room: topics. Reads of other nodes' streams, each made once for all who are at the same place.

    reads = SharedReads(read_over_the_link)
    block = await reads.read(stream, offset)      ten thousand readers at the end of a stream: one question

All readers at the end of a stream wait for what comes next. Were each to ask by itself, each message would go
over the link as often as it has readers here, and be taken to pieces as often.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from moorline.core.frames.block import Block
from moorline.core.stream import Gap, Stream

Found = Block | Gap | None
Read = Callable[[Stream, int], Awaitable[Found]]
ReadFrom = tuple[Stream, int]


class _SharedRead:
    __slots__ = ("readers", "task")

    def __init__(self, task: "asyncio.Task[Found]") -> None:
        self.task: Final = task
        self.readers = 0


class SharedReads:
    """`read` is how one is made; each reader is told of its end, also of an error."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._under_way: dict[ReadFrom, _SharedRead] = {}

    async def read(self, stream: Stream, offset: int) -> Found:
        """What follows the offset; what the read raises, all who share it are told."""
        place = stream, offset
        shared = self._under_way.get(place)
        if shared is None:
            shared = _SharedRead(asyncio.ensure_future(self._made(place)))
            self._under_way[place] = shared
        shared.readers += 1
        try:
            # One that is cancelled takes it from nobody else.
            return await asyncio.shield(shared.task)
        finally:
            shared.readers -= 1
            if not shared.readers and not shared.task.done():
                # Nobody waits any more: the other node is told that too.
                self._forget(place, shared)
                shared.task.cancel()

    async def _made(self, place: ReadFrom) -> Found:
        try:
            return await self._read(*place)
        finally:
            # Whoever comes behind the answer asks anew: by then there may be more.
            shared = self._under_way.get(place)
            if shared is not None and shared.task is asyncio.current_task():
                del self._under_way[place]

    def _forget(self, place: ReadFrom, shared: _SharedRead) -> None:
        if self._under_way.get(place) is shared:
            del self._under_way[place]
