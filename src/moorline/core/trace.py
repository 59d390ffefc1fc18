"""Room: core. Traces of messages: which are traced, under which ids, and how spans are told (OTLP, as JSON).

    traced_in(frames, home, shard, one_in)    the messages that are traced, of some frames
    encoded(spans, resource, version)         an ExportTraceServiceRequest in JSON

Nothing is kept with a message. Whether it is traced, and under which ids, follows from what it is: its
header `traceparent` (W3C Trace Context) where it has one, else its place. So every node that meets it comes
to the same answer, long after its publish too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import xxhash

from moorline.core.frames.block import Block
from moorline.core.frames.frame import FRAME, HEAD, Stored, all_stored
from moorline.ids import text_of

_IN_HEADERS: Final = re.compile(
    rb"\xabtraceparent\xc4\x3700-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
)
"""As msgpack has a name and its bytes: 00-TRACE-SPAN-FLAGS, in lower case."""
HEADER: Final = b"\xabtraceparent\xc4\x37"
"""How it begins."""
_SAMPLED: Final = 1

PUBLISH, SEND, COMMIT, DELIVER, ACK = "publish", "send", "commit", "deliver", "ack"
_KINDS: Final = {PUBLISH: 4, SEND: 4, COMMIT: 1, DELIVER: 5, ACK: 1}
"""PRODUCER, INTERNAL and CONSUMER of OTLP."""


QUEUE_NAME_CHARACTERS: Final = 8
"""Of the 32 of a queue's id: what traces call it."""


class Traced(NamedTuple):
    """A message that is traced."""

    offset: int
    time_us: int
    topic: str
    trace: str
    parent: str
    """The span that its publisher named; empty where there is none."""
    place: str

    def span(self, step: str) -> str:
        """The id of the span of its publish or commit: the same at every node that asks."""
        return _span(self.place, step)


class QueueTraced(NamedTuple):
    """A message of a queue that is traced."""

    queue: bytes
    message: int
    time_ms: int

    @property
    def name(self) -> str:
        """The beginning of its id: enough to find it by, and no right to send to it."""
        return text_of(self.queue)[:QUEUE_NAME_CHARACTERS]

    @property
    def time_us(self) -> int:
        return self.time_ms * 1_000

    @property
    def trace(self) -> str:
        return xxhash.xxh3_128_hexdigest(self._place.encode())

    def span(self, step: str) -> str:
        """The id of the span of its send or commit: the same behind a restart."""
        return _span(self._place, step)

    @property
    def _place(self) -> str:
        return f"{text_of(self.queue)}/{self.message}/{self.time_ms}"


class Span(NamedTuple):
    trace: str
    span: str
    parent: str
    name: str
    step: str
    start_us: int
    end_us: int
    attributes: Mapping[str, str | int]


def _span(place: str, step: str) -> str:
    return xxhash.xxh3_64_hexdigest(f"{place}/{step}".encode())


def is_chosen(number: int, one_in: int) -> bool:
    """Of the changes to queues one in so many; 0 is none.

    One of each stretch of so many numbers, and by its hash which: sends and acknowledgements take numbers in
    turn, so that a plain remainder would choose all sends or none.
    """
    return one_in > 0 and _chosen(number // one_in, one_in) == number


def may_have_chosen(first: int, upto: int, one_in: int) -> bool:
    """Whether one of these numbers is chosen: most batches have none."""
    if not one_in:
        return False
    stretches = range(first // one_in, (upto - 1) // one_in + 1)
    return any(first <= _chosen(stretch, one_in) < upto for stretch in stretches)


def _chosen(stretch: int, one_in: int) -> int:
    return stretch * one_in + xxhash.xxh3_64_intdigest(stretch.to_bytes(8, "big")) % one_in


def is_sampled(offset: int, one_in: int) -> bool:
    """Of the messages of a shard without a header one in so many; 0 is none."""
    return one_in > 0 and offset % one_in == 0


def may_have_traced(frames: bytes, first: int, upto: int, one_in: int) -> bool:
    """Whether to look at the frames at all: most blocks have nothing that is traced."""
    if one_in and -(first // -one_in) * one_in < upto:
        return True
    return HEADER in frames


def traced_in(frames: bytes, home: str, shard: int, one_in: int) -> Iterator[Traced]:
    """The messages of whole frames that are traced."""
    for stored in all_stored(frames):
        traced = _traced(stored, home, shard, one_in)
        if traced is not None:
            yield traced


def traced_of_block(block: Block, home: str, shard: int, one_in: int) -> Iterator[Traced]:
    """The same of a block, without a look at each: those that the sampling takes, and those with a header."""
    wanted = set[int]()
    if one_in:
        wanted.update(range(-(block.first // -one_in) * one_in, block.upto, one_in))
    data, positions = block.data, block.positions
    at = data.find(HEADER)
    while at >= 0:
        # The last frame that begins before it.
        place = int(positions.searchsorted(at, "right")) - 1
        wanted.add(block.first + place)
        after = int(positions[place + 1]) if place + 1 < len(positions) else len(data)
        at = data.find(HEADER, after)
    for offset in sorted(wanted):
        start = int(positions[offset - block.first])
        stop = start + HEAD.size + HEAD.unpack_from(data, start)[0]
        yield from traced_in(data[start:stop], home, shard, one_in)


def first_offset(frames: bytes) -> int:
    """Of whole frames, of which there is one at least."""
    return int(FRAME.unpack_from(frames)[2])


def _traced(stored: Stored, home: str, shard: int, one_in: int) -> Traced | None:
    place = f"{home}/{shard}/{stored.offset}/{stored.time_us}"
    found = _IN_HEADERS.search(stored.headers) if stored.headers else None
    if found is not None:
        trace, parent, flags = (part.decode() for part in found.groups())
        # Zeros are no ids (W3C Trace Context, 3.2.2).
        if trace.strip("0") and parent.strip("0"):
            if not int(flags, 16) & _SAMPLED:
                return None  # whoever began the trace has decided against it
            return Traced(stored.offset, stored.time_us, stored.topic, trace, parent, place)
    if not is_sampled(stored.offset, one_in):
        return None
    trace = xxhash.xxh3_128_hexdigest(place.encode())
    return Traced(stored.offset, stored.time_us, stored.topic, trace, "", place)


def encoded(spans: Sequence[Span], resource: Mapping[str, str], version: str) -> bytes:
    """What OTLP over HTTP takes as application/json: ids in hex, numbers of 64 bits as texts."""
    told = [_told(span) for span in spans]
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [
                        {"scope": {"name": "moorline", "version": version}, "spans": told}
                    ],
                }
            ]
        }
    )


def _told(span: Span) -> dict[str, object]:
    told: dict[str, object] = {
        "traceId": span.trace,
        "spanId": span.span,
        "name": span.name,
        "kind": _KINDS[span.step],
        "startTimeUnixNano": str(span.start_us * 1_000),
        "endTimeUnixNano": str(max(span.start_us, span.end_us) * 1_000),
        "attributes": _attributes(span.attributes),
    }
    if span.parent:
        told["parentSpanId"] = span.parent
    return told


def _attributes(given: Mapping[str, str | int]) -> list[dict[str, object]]:
    return [{"key": name, "value": _value(value)} for name, value in given.items()]


def _value(value: str | int) -> dict[str, str]:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
