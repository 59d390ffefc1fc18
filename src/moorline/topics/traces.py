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
from collections.abc import Callable, Iterable

from moorline.core.delivery.effects import Deliver
from moorline.core.ranges import Range
from moorline.core.stream import Stream
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
from moorline.journal.streams.batch import StreamBatch
from moorline.limits import TRACED_IN_FLIGHT_MAX, TRACED_MESSAGES_PER_S_MAX
from moorline.net.clock import wall_us
from moorline.net.span_export import SpanExport


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
        self.passed_over = 0
        """How often a batch or a delivery had more to trace than there was room for in its second."""
        self.export = export
        self._node = node
        self.one_in = one_in
        self._second = 0
        self._left = 0

    def committed(self, batch: StreamBatch, took_s: float) -> None:
        """It is durable, and its publishers are answered."""
        now_us = self.now_us()
        begun_us = now_us - int(took_s * 1_000_000)
        for part in batch.parts:
            block, shard = part.block, part.shard.number
            if not may_have_traced(block.data, block.first, block.upto, self.one_in):
                continue
            for traced in traced_of_block(block, self._node, shard, self.one_in):
                if not self.has_room(now_us):
                    return
                stream = Stream(self._node, shard, part.generation.number)
                publish = traced.span(PUBLISH)
                self.add(traced, PUBLISH, publish, traced.parent, traced.time_us, stream)
                self.add(traced, COMMIT, traced.span(COMMIT), publish, begun_us, stream)

    def has_room(self, now_us: int) -> bool:
        """Takes a place of this second."""
        second = now_us // 1_000_000
        if second != self._second:
            self._second, self._left = second, TRACED_MESSAGES_PER_S_MAX
        if not self._left:
            self.passed_over += 1
            return False
        self._left -= 1
        return True

    def add(
        self, traced: Traced, step: str, span: str, parent: str, start_us: int, stream: Stream
    ) -> None:
        attributes: dict[str, str | int] = {
            "messaging.system": "moorline",
            "messaging.destination.name": traced.topic,
            "moorline.stream": str(stream),
            "moorline.offset": traced.offset,
        }
        name, now_us = f"{step} {traced.topic}", self.now_us()
        self.export.add(Span(traced.trace, span, parent, name, step, start_us, now_us, attributes))


class DeliveryTraces:
    """Of the feeds of one session."""

    def __init__(self, traces: MessageTraces) -> None:
        self._traces = traces
        self._out: dict[int, dict[int, tuple[Traced, Stream, str, int]]] = {}
        """By feed and offset: what has left, as which span, and when."""

    def delivered(self, effect: Deliver, stream: Stream) -> None:
        frames, traces = effect.frames, self._traces
        if not frames or not may_have_traced(
            frames, first_offset(frames), effect.upto, traces.one_in
        ):
            return
        for traced in traced_in(frames, stream.home, stream.shard_number, traces.one_in):
            now_us = traces.now_us()
            if not traces.has_room(now_us):
                return
            span = _drawn()
            traces.add(traced, DELIVER, span, traced.span(COMMIT), traced.time_us, stream)
            if traces.in_flight < TRACED_IN_FLIGHT_MAX:
                out = self._out.setdefault(effect.feed, {})
                traces.in_flight += traced.offset not in out
                out[traced.offset] = traced, stream, span, now_us

    def acked(self, feed: int, ranges: Iterable[Range]) -> None:
        out = self._out.get(feed)
        if not out:
            return
        spans = list(ranges)
        for offset in [one for one in out if any(first <= one < upto for first, upto in spans)]:
            traced, stream, parent, left_us = out.pop(offset)
            self._traces.in_flight -= 1
            self._traces.add(traced, ACK, _drawn(), parent, left_us, stream)

    def ended(self, feed: int) -> None:
        """What was not acknowledged comes again, here or elsewhere."""
        self._traces.in_flight -= len(self._out.pop(feed, ()))

    def close(self) -> None:
        for feed in list(self._out):
            self.ended(feed)


def _drawn() -> str:
    """The id of a span that no other node has to know; a message may be delivered many times."""
    return secrets.token_hex(8)
