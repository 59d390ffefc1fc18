"""Room: topics. Reads of a stream for those who may read some topics: what their filters take, no more.

The bytes of a stream as they are stored, or of its file, are for those who may read everything
(`stream_reads`, `stream_files`). Here the node itself picks the frames; they leave as they are, with their
offsets, so that a reader tells what was skipped from what is lost.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from moorline.access.demands import Demands
from moorline.access.guard import (
    Declarations,
    Declared,
    GuardedHandler,
    Refusal,
    demand,
    heavy,
    needs,
)
from moorline.core.access.right import LIST, SUBSCRIBE
from moorline.core.delivery.selection import Selection, select, select_picked
from moorline.core.frames.block import Block
from moorline.core.frames.picked import Picked
from moorline.core.stream import Gap, Stream
from moorline.core.topic import Matcher, check_filter
from moorline.errors import NotFound
from moorline.journal.streams.topic_picks import Wish
from moorline.limits import PICK_MESSAGES_MAX, STREAM_READ_BYTES_MAX
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.net.turns import Turns
from moorline.topics.paths import all_topics, path_of_topic
from moorline.topics.streams import LocalStreams
from moorline.wire.message import Answer
from moorline.wire.stream_file import MatchingRead, ReadMatching

ALL = 1 << 62


class Filtered(Protocol):
    """A call that may name what it wants to read."""

    @property
    def filters(self) -> Sequence[str]: ...


def paths_read(call: Filtered) -> Iterable[str]:
    return [path_of_topic(one) for one in call.filters]


def lists_or_reads(handler: GuardedHandler) -> Declared:
    """How far streams go: the right to list all topics, or to read each filter that the call names."""
    by_list, by_filter = needs(LIST, all_topics, handler), needs(SUBSCRIBE, paths_read, handler)

    def check(rights: SessionRights, call: Filtered) -> Refusal | None:
        wanted = by_filter if call.filters else by_list
        assert wanted.check is not None
        return wanted.check(rights, call)

    return Declared(handler, check)


class FilteredReads:
    """Answers `ReadMatching`."""

    def __init__(self, streams: LocalStreams, demands: Demands) -> None:
        self._streams = streams
        self._demands = demands
        self.skipped = 0
        """Messages that were looked at and not given since the start, for /metrics."""

    def declared(self, turns: Turns) -> Declarations:
        read = turns.spawned(self._demands.telling(self._read))
        return {ReadMatching: heavy(needs(SUBSCRIBE, paths_read, read))}

    async def _read(self, session: Session, call: ReadMatching) -> Answer:
        for text in call.filters:
            check_filter(text)
        self._check(call)
        stream = Stream(self._streams.node, call.shard, call.generation)
        bytes_max = min(call.bytes_max, STREAM_READ_BYTES_MAX)
        room = call.messages_max or ALL
        wanted = min(room, PICK_MESSAGES_MAX)
        wish = Wish(tuple(call.filters), max(call.upto, call.offset), wanted)
        found = await self._streams.pick(stream, call.offset, wish, bytes_max)
        if isinstance(found, Block | Picked):
            # In a thread: as many names as there are messages may be matched with all filters.
            filters = list(call.filters)
            chosen = await asyncio.to_thread(chosen_frames, found, call.upto, filters, room)
        # Its turn, the disk and the thread took their time: the right is asked for once more.
        for path in paths_read(call):
            demand(session.rights, SUBSCRIBE, path)
        if found is None:
            return MatchingRead(call.call, call.offset, call.offset, b"")
        if isinstance(found, Gap):
            return MatchingRead(call.call, found.first, found.upto, b"", reason=found.reason)
        skipped = chosen.upto - found.first - chosen.taken
        self.skipped += skipped
        return MatchingRead(call.call, found.first, chosen.upto, chosen.frames, skipped)

    def _check(self, call: ReadMatching) -> None:
        newest = self._streams.store.newest_generations().get(call.shard)
        if newest is None or call.generation > newest:
            raise NotFound(f"this node has no stream {call.shard}/{call.generation}")


def chosen_frames(
    block: Block | Picked, upto: int, filters: list[str], room: int = ALL
) -> Selection:
    """The first `room` messages below `upto` that one of the filters takes. Expired ones too: it is a copy of
    what is stored, and its reader sees when each one ends."""
    if isinstance(block, Picked):
        return select_picked(block, max(upto, block.first), room, _AnyOf(filters), 0)
    return select(block, max(upto, block.first), room, _AnyOf(filters), 0)


class _AnyOf:
    """Several filters, as a reader of one."""

    def __init__(self, filters: list[str]) -> None:
        self._matchers = [Matcher(one) for one in filters]

    def __call__(self, topic: str) -> bool:
        return any(matches(topic) for matches in self._matchers)
