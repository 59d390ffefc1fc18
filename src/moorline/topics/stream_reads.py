"""Room: topics. Reads of a stream by offset: what follows a place, or the first that comes to follow it.

A read may wait for long. Whether it is granted is asked when it comes, and once more before it is answered:
a right that is taken away meanwhile ends its wait, and nothing is given.
"""

import asyncio
from collections.abc import Generator

from moorline.access.demands import Demands
from moorline.access.guard import Declared, demand_everything, needs_everything
from moorline.core.access.right import SUBSCRIBE
from moorline.core.frames.hidden import hidden_ranges
from moorline.core.stream import Gap, Stream
from moorline.errors import NotFound
from moorline.limits import STREAM_READ_BYTES_MAX
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.net.turns import Turns
from moorline.topics.paths import TOPICS
from moorline.topics.streams import LocalStreams
from moorline.wire.group import ReadStream, StreamRead
from moorline.wire.message import Answer


class StreamReads:
    """Those of nodes, of the archive and of Spark."""

    def __init__(self, streams: LocalStreams, demands: Demands) -> None:
        self._streams = streams
        self._demands = demands
        self._waiting: dict[asyncio.Event, Session] = {}

    def declared(self, turns: Turns) -> Declared:
        read = turns.spawned(self._demands.telling(self._read), self._wait_for_news)
        # Frames of all topics, as they are stored; some of them are for `ReadMatching`.
        return needs_everything(SUBSCRIBE, TOPICS, read)

    def judge_again(self) -> Generator[None, None, None]:
        """Wakes those that wait for what they may not read any more; nodes may always."""
        for moved, session in list(self._waiting.items()):
            if not _may_read(session.rights):
                moved.set()
            yield

    async def _read(self, session: Session, call: ReadStream) -> Answer:
        demand_everything(session.rights, SUBSCRIBE, TOPICS)
        self._check(call)
        bytes_max = min(call.bytes_max, STREAM_READ_BYTES_MAX)
        stream = Stream(self._streams.node, call.shard, call.generation)
        found = await self._streams.read(stream, call.offset, bytes_max)
        # The disk may have taken its time.
        demand_everything(session.rights, SUBSCRIBE, TOPICS)
        if found is None:
            return StreamRead(call.call, call.offset, call.offset, b"")
        if isinstance(found, Gap):
            return StreamRead(call.call, found.first, found.upto, b"", found.reason)
        hidden = hidden_ranges(found)
        return StreamRead(call.call, found.first, found.upto, found.data, hidden=hidden)

    async def _wait_for_news(self, session: Session, call: ReadStream) -> None:
        """Waits until there is something to be read, as long as the call allows; reads nothing yet."""
        streams = self._streams
        if not call.wait_ms or not _may_read(session.rights) or self._is_answered_at_once(call):
            return
        moved = asyncio.Event()
        streams.when_moved(call.shard, moved.set)
        self._waiting[moved] = session
        try:
            async with asyncio.timeout(call.wait_ms / 1_000):
                await moved.wait()
        except TimeoutError:
            pass
        finally:
            del self._waiting[moved]
            streams.forget(call.shard, moved.set)

    def _is_answered_at_once(self, call: ReadStream) -> bool:
        store = self._streams.store
        extent = store.extent(call.shard, call.generation)
        if extent is not None:
            return call.offset < extent.end
        newest = store.newest_generations().get(call.shard, -1)
        # One that is dropped is a gap, which needs no disk; one that never was is refused.
        return call.generation > newest or (
            store.read(call.shard, call.generation, call.offset, 1) is not None
        )

    def _check(self, call: ReadStream) -> None:
        """Refuses what is no place of any stream; one of a generation that is dropped is a gap."""
        store = self._streams.store
        newest = store.newest_generations().get(call.shard)
        if newest is None or call.generation > newest:
            raise NotFound(f"this node has no stream {call.shard}/{call.generation}")


def _may_read(rights: SessionRights) -> bool:
    return bool(rights.everywhere(TOPICS) & SUBSCRIBE)
