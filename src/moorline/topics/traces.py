"""Room: topics. The traces of messages as a node meets them: stored, given to a client, acknowledged.

    publish   from when the node had it until it answered; below the span that its publisher named
      commit  the group commit that made it durable
        deliver   from when it was stored until it left for a client
          ack     until that client was done with it

Where no collector is set none of this exists, and who would call it asks one attribute. At most
`TRACED_MESSAGES_PER_S_MAX` messages of a second are traced: publishers decide about headers, and a flood of
them is not to cost the node more than that.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable

from moorline.core.delivery.effects import Deliver
from moorline.core.delivery.open_feed import OpenFeed
from moorline.core.frames.block import Block
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import Gap, Stream
from moorline.core.trace import (
    ACK,
    COMMIT,
    DELIVER,
    PUBLISH,
    Span,
    Traced,
    first_offset,
    may_have_traced,
    traced_in,
    traced_of_block,
)
from moorline.errors import MoorlineError
from moorline.journal.streams.batch import StreamBatch
from moorline.limits import TRACED_IN_FLIGHT_MAX, TRACED_PULL_BYTES_MAX
from moorline.net.clock import wall_us
from moorline.net.span_export import SpanExport

Read = Callable[[Stream, int], Awaitable[Block | Gap | None]]
"""What follows an offset of a stream, wherever that is."""


class MessageTraces:
    """Of one node."""

    def __init__(
        self,
        export: SpanExport,
        node: str,
        one_in: int,
        now_us: Callable[[], int] = wall_us,
    ) -> None:
        self.now_us = now_us
        self.in_flight = 0
        """Deliveries that are traced and not acknowledged yet."""
        self.export = export
        self._node = node
        self.one_in = one_in

    def committed(self, batch: StreamBatch, took_s: float) -> None:
        """It is durable, and its publishers are answered."""
        now_us = self.now_us()
        begun_us = now_us - int(took_s * 1_000_000)
        for part in batch.parts:
            block, shard = part.block, part.shard.number
            if not may_have_traced(block.data, block.first, block.upto, self.one_in):
                continue
            for traced in traced_of_block(block, self._node, shard, self.one_in):
                if not self.export.has_room(now_us):
                    return
                stream = Stream(self._node, shard, part.generation.number)
                publish = traced.span(PUBLISH)
                self.add(traced, PUBLISH, publish, traced.parent, traced.time_us, stream)
                self.add(traced, COMMIT, traced.span(COMMIT), publish, begun_us, stream)

    def add(
        self,
        traced: Traced,
        step: str,
        span: str,
        parent: str,
        start_us: int,
        stream: Stream,
        end_us: int = 0,
    ) -> None:
        """It ends now, unless it is said when."""
        attributes: dict[str, str | int] = {
            "messaging.system": "moorline",
            "messaging.destination.name": traced.topic,
            "moorline.stream": str(stream),
            "moorline.offset": traced.offset,
        }
        name, end_us = f"{step} {traced.topic}", end_us or self.now_us()
        self.export.add(Span(traced.trace, span, parent, name, step, start_us, end_us, attributes))


class DeliveryTraces:
    """Of the feeds of one session."""

    def __init__(self, traces: MessageTraces) -> None:
        self._traces = traces
        self._out: dict[int, dict[int, tuple[Traced, Stream, str, int]]] = {}
        """By feed and offset: what has left, as which span, and when."""
        self._looked_at: dict[int, _LookedAt] = {}
        """By feed, while what was pulled of it is looked at."""

    def delivered(self, effect: Deliver, stream: Stream) -> None:
        frames, traces = effect.frames, self._traces
        if not frames or not may_have_traced(
            frames, first_offset(frames), effect.upto, traces.one_in
        ):
            return
        for traced in traced_in(frames, stream.home, stream.shard_number, traces.one_in):
            now_us = traces.now_us()
            if not traces.export.has_room(now_us):
                return
            self._left(effect.feed, traced, stream, now_us)

    def _left(self, feed: int, traced: Traced, stream: Stream, left_us: int) -> None:
        traces, span = self._traces, _drawn()
        traces.add(traced, DELIVER, span, traced.span(COMMIT), traced.time_us, stream, left_us)
        if traces.in_flight < TRACED_IN_FLIGHT_MAX:
            out = self._out.setdefault(feed, {})
            traces.in_flight += traced.offset not in out
            out[traced.offset] = traced, stream, span, left_us

    async def pulled(self, one: OpenFeed, ranges: Iterable[Range], read: Read) -> None:
        """A member takes these by itself, from whoever has them; so they are looked at once more here."""
        left_us, left_bytes = self._traces.now_us(), TRACED_PULL_BYTES_MAX
        number, pulled = one.feed.number, list(ranges)
        looked_at = self._looked_at.setdefault(number, _LookedAt())
        looked_at.begin(pulled)
        try:
            for first, upto in pulled:
                offset = first
                while offset < upto:
                    found = await read(one.feed.stream, offset)
                    if (
                        found is None
                        or left_bytes <= 0
                        or looked_at is not self._looked_at.get(number)
                    ):
                        return
                    offset = found.upto
                    if isinstance(found, Block):
                        left_bytes -= len(found.data)
                        if not self._pulled(one, found, (first, upto), left_us):
                            return
        except (MoorlineError, OSError):
            return  # its node is away: so it is for the member
        finally:
            looked_at.looks -= 1
            if looked_at is self._looked_at.get(number):
                if not looked_at.looks:
                    del self._looked_at[number]
                self._done(number, list(looked_at.acked))

    def _pulled(self, one: OpenFeed, block: Block, taken: Range, left_us: int) -> bool:
        """Whether there is room for more."""
        stream, traces = one.feed.stream, self._traces
        if not may_have_traced(block.data, block.first, block.upto, traces.one_in):
            return True
        for traced in traced_of_block(block, stream.home, stream.shard_number, traces.one_in):
            # A member takes messages of all topics, and passes over those that are not for its group.
            if taken[0] <= traced.offset < taken[1] and one.window.matcher(traced.topic):
                if not traces.export.has_room(left_us):
                    return False
                self._left(one.feed.number, traced, stream, left_us)
        return True

    def acked(self, feed: int, ranges: Iterable[Range]) -> None:
        spans = list(ranges)
        looked_at = self._looked_at.get(feed)
        if looked_at is not None:
            looked_at.hear(spans)
        self._done(feed, spans)

    def _done(self, feed: int, ranges: list[Range]) -> None:
        out = self._out.get(feed)
        if not out:
            return
        for offset in _of(out, ranges):
            traced, stream, parent, left_us = out.pop(offset)
            self._traces.in_flight -= 1
            self._traces.add(traced, ACK, _drawn(), parent, left_us, stream)

    def ended(self, feed: int) -> None:
        """What was not acknowledged comes again, here or elsewhere."""
        self._traces.in_flight -= len(self._out.pop(feed, ()))
        self._looked_at.pop(feed, None)

    def close(self) -> None:
        for feed in list(self._out):
            self.ended(feed)


class _LookedAt:
    """What was pulled of a feed and is looked at still, and what of it was acknowledged meanwhile.

    One for all looks at a feed: a member may pull one by one while the node that has them says nothing."""

    def __init__(self) -> None:
        self.looks = 0
        self.acked = Ranges()
        self._pulled = Ranges()

    def begin(self, pulled: Iterable[Range]) -> None:
        self.looks += 1
        for first, upto in pulled:
            self._pulled.add(first, upto)

    def hear(self, ranges: list[Range]) -> None:
        for first, upto in Ranges(sorted(ranges)):
            for part in self._pulled.clip(first, upto):
                self.acked.add(*part)


def _of(out: Collection[int], ranges: list[Range]) -> list[int]:
    """Those that are in the ranges. A client may name as many as its window has: never each with each."""
    if sum(max(0, upto - first) for first, upto in ranges) <= len(out):
        named = (one for first, upto in ranges for one in range(first, upto))
        return [one for one in dict.fromkeys(named) if one in out]
    done = Ranges(sorted(ranges))
    return [one for one in out if one in done]


def _drawn() -> str:
    """The id of a span that no other node has to know; a message may be delivered many times."""
    return secrets.token_hex(8)
