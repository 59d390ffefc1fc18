"""Room: groups. Places on their way into the catalog: those of all readers of this node in one statement.

One statement is on its way at a time; what comes meanwhile goes with the next. A reader waits for its answer
before it commits again, so its places are stored in order.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import msgspec

from moorline.catalog.groups import Groups
from moorline.catalog.readers import CursorRow as Row
from moorline.core.delivery.progress import Cursor
from moorline.core.ranges import Range
from moorline.core.stream import Shard
from moorline.errors import CallFailed, MoorlineError

log = logging.getLogger("moorline.groups")

Waiting = tuple[int, int, list[Row], "asyncio.Future[bool]"]
"""Reader, epoch, places, and who waits for them to be stored."""

_encoder = msgspec.msgpack.Encoder()
_ranges_of = msgspec.msgpack.Decoder(tuple[Range, ...])


class _Rest(msgspec.Struct, frozen=True, array_like=True):
    """What the second text of bytes of a stored place holds."""

    failures: tuple[Range, ...] = ()
    lost: int = 0


_rest_of = msgspec.msgpack.Decoder(_Rest)


class CursorCommits:
    """Gathers commits."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def load(self, reader: int) -> list[tuple[Shard, Cursor]]:
        rows = await self._groups.cursors(reader)
        return [(Shard(row.home, row.shard), _cursor_of(row)) for row in rows]

    async def commit(
        self, reader: int, epoch: int, cursors: Sequence[tuple[Shard, Cursor]]
    ) -> bool:
        """Stores places; False if the reader is another's by now."""
        rows = [row_of(shard, cursor) for shard, cursor in cursors]
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

    async def _write_batch(self, batch: list[Waiting]) -> None:
        # A reader is named once in a statement; a second one of it waits for the next.
        now: dict[int, Waiting] = {}
        for one in batch:
            if one[0] in now:
                self._waiting.append(one)
            else:
                now[one[0]] = one
        try:
            fenced = await self._groups.commit_all([one[:3] for one in now.values()])
        except (MoorlineError, OSError) as error:
            _fail(now.values(), error)
        except Exception as error:
            # The catalog is there and refuses: something in one of them is wrong. The others go alone.
            log.exception("places were refused")
            if len(now) == 1:
                _fail(now.values(), error)
            for one in now.values() if len(now) > 1 else ():
                await self._write_batch([one])
        else:
            for reader, _, _, done in now.values():
                if not done.done():
                    done.set_result(reader not in fenced)


def _fail(commits: Iterable[Waiting], error: Exception) -> None:
    for *_, done in commits:
        if not done.done():
            done.set_exception(error)


def row_of(shard: Shard, cursor: Cursor) -> Row:
    return Row(
        shard.home,
        shard.number,
        cursor.offset,
        _encoder.encode(cursor.acked) if cursor.acked else b"",
        _encoder.encode(_Rest(cursor.failures, cursor.lost))
        if cursor.failures or cursor.lost
        else b"",
    )


def _cursor_of(row: Row) -> Cursor:
    try:
        acked = _ranges_of.decode(row.acked) if row.acked else ()
        rest = _rest_of.decode(row.failures) if row.failures else _Rest()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallFailed(
            f"the stored place in {row.home}/{row.shard} is damaged, or of another version of Moorline "
            f"({error}): `moor group delete` and `create` begin anew"
        ) from error
    return Cursor(row.offset, acked, rest.failures, rest.lost)
