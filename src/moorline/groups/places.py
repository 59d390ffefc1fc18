"""Room: groups. Places on their way into the catalog: those of all readers of this node in one statement.

One statement is on its way at a time; what comes meanwhile goes with the next. A reader waits for its answer
before it commits again, so its places are stored in order.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from moorline.catalog.groups import Groups
from moorline.catalog.readers import Place as Row
from moorline.core.progress import Place
from moorline.core.ranges import Range
from moorline.core.stream import Shard
from moorline.errors import MoorlineError

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Range, ...])


class Places:
    """Gathers commits."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._waiting: list[tuple[int, int, list[Row], asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self, reader: int) -> list[tuple[Shard, Place]]:
        return [
            (
                Shard(row.node, row.shard),
                Place(row.offset, _ranges(row.acked), _ranges(row.failures)),
            )
            for row in await self._groups.places(reader)
        ]

    async def commit(
        self, reader: int, epoch: int, places: Sequence[tuple[Shard, Place]], *, seek: bool = False
    ) -> bool:
        """Stores places; False if the reader is another's by now."""
        rows = [_row(shard, place) for shard, place in places]
        if seek:
            return await self._groups.commit(reader, epoch, rows, seek=True)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((reader, epoch, rows, done))
        if self._task is None:
            self._task = asyncio.create_task(self._write())
        return await done

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write_batch(batch)
        finally:
            self._task = None

    async def _write_batch(
        self, batch: list[tuple[int, int, list[Row], "asyncio.Future[bool]"]]
    ) -> None:
        # A reader is named once in a statement; a second one of it waits for the next.
        now: dict[int, tuple[int, int, list[Row], asyncio.Future[bool]]] = {}
        for one in batch:
            if one[0] in now:
                self._waiting.append(one)
            else:
                now[one[0]] = one
        try:
            fenced = await self._groups.commit_all([one[:3] for one in now.values()])
        except (MoorlineError, OSError) as error:
            for *_, done in now.values():
                if not done.done():
                    done.set_exception(error)
            return
        for reader, _, _, done in now.values():
            if not done.done():
                done.set_result(reader not in fenced)


def _row(shard: Shard, place: Place) -> Row:
    return Row(
        shard.node,
        shard.number,
        place.offset,
        _encoder.encode(place.acked) if place.acked else b"",
        _encoder.encode(place.failures) if place.failures else b"",
    )


def _ranges(data: bytes) -> tuple[Range, ...]:
    return _decoder.decode(data) if data else ()
