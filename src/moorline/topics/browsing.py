"""Room: topics. What a person looks at: some messages of a stream, picked and decoded by the node.

One call reads a piece of a bounded size, in a thread, and gives the loop back; to look further is another
call, and whoever asks stops by asking no more. Each look is an act of the audit: unlike a subscription it
leaves no other trace.
"""

import asyncio

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand, heavy, needs
from moorline.core.access.right import SUBSCRIBE
from moorline.core.frames.block import Block
from moorline.core.frames.frame import Stored, all_stored, decode_headers
from moorline.core.frames.picked import Picked
from moorline.core.stream import Gap, Stream
from moorline.core.topic import check_filter
from moorline.errors import NotFound
from moorline.journal.streams.topic_picks import Wish
from moorline.limits import (
    BROWSED_ANSWER_BYTES_MAX,
    BROWSED_BODY_BYTES_MAX,
    STREAM_READ_BYTES_MAX,
)
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.topics.filtered_reads import ALL, chosen_frames, paths_read
from moorline.topics.streams import LocalStreams
from moorline.wire.browse import BrowsedMessage, BrowseStream, StreamBrowsed
from moorline.wire.message import Answer


class Browsing:
    """Answers `BrowseStream`."""

    def __init__(self, streams: LocalStreams, demands: Demands) -> None:
        self._streams = streams
        self._demands = demands

    def declared(self, turns: Turns) -> Declarations:
        browse = turns.spawned(self._demands.telling(self._browse))
        return {BrowseStream: heavy(needs(SUBSCRIBE, paths_read, browse))}

    async def _browse(self, session: Session, call: BrowseStream) -> Answer:
        for text in call.filters:
            check_filter(text)
        newest = self._streams.store.newest_generations().get(call.shard)
        if newest is None or call.generation > newest:
            raise NotFound(f"this node has no stream {call.shard}/{call.generation}")
        await asyncio.gather(
            *(self._demands.looked(session, call, path) for path in paths_read(call))
        )
        stream = Stream(self._streams.node, call.shard, call.generation)
        wish = Wish(tuple(call.filters), ALL)
        found = await self._streams.pick(stream, call.offset, wish, STREAM_READ_BYTES_MAX)
        if found is None:
            return StreamBrowsed(call.call, call.offset, call.offset)
        if isinstance(found, Gap):
            return StreamBrowsed(call.call, found.first, found.upto, reason=found.reason)
        answer = await asyncio.to_thread(_looked_through, found, call)
        # The disk and the thread took their time: the right is asked for once more.
        for path in paths_read(call):
            demand(session.rights, SUBSCRIBE, path)
        return answer


def _looked_through(found: Block | Picked, call: BrowseStream) -> StreamBrowsed:
    chosen = chosen_frames(found, ALL, list(call.filters))
    messages: list[BrowsedMessage] = []
    size = 0
    for stored in all_stored(chosen.frames):
        is_wanted = (
            stored.offset >= call.offset
            and call.key in {None, stored.key}
            and stored.time_us >= call.from_us
        )
        if not is_wanted or call.contains not in stored.body:
            continue
        message = _shown(stored, len(stored.body) if call.is_whole else BROWSED_BODY_BYTES_MAX)
        size += len(message.body) + len(message.topic)
        is_full = len(messages) == call.count or (messages and size > BROWSED_ANSWER_BYTES_MAX)
        if is_full:
            return StreamBrowsed(call.call, found.first, stored.offset, messages)
        messages.append(message)
    return StreamBrowsed(call.call, found.first, chosen.upto, messages)


def _shown(stored: Stored, body_bytes_max: int) -> BrowsedMessage:
    return BrowsedMessage(
        stored.offset,
        stored.time_us,
        stored.topic,
        stored.key,
        decode_headers(stored.headers),
        bytes(stored.body[:body_bytes_max]),
        len(stored.body),
        stored.ttl_s,
        stored.flags,
    )
