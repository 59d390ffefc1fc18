"""Room: spark. Frames into Arrow columns, a whole block of them at a time.

A block is a piece of a segment in one buffer, and where in it the frames begin. Numbers are gathered with
numpy from views of the buffer that begin at every byte; texts and bodies become views of the buffer that
Arrow copies together once. Nothing here looks at a single message, but for headers: of those, each
distinct one is decoded once.

    block = Block(data, places, lengths, offsets)
    frames = Frames(block)
    frames.values()                            # a binary column
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.core.frames.byte_columns import ByteColumn, Numbers, words_at
from moorline.core.frames.fields import (
    FLAGS_AT,
    HEADERS_AT,
    KEY_AT,
    TIME_AT,
    TOPIC_AT,
    TTL_AT,
)
from moorline.core.frames.frame import (
    FRAME,
    HEAD,
    KEYED,
    PRODUCER,
    PRODUCER_PART,
    TOMBSTONE,
    decode_headers,
)
from moorline.core.topic import Matcher

Mask = npt.NDArray[np.bool_]

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Block(NamedTuple):
    """Frames in a padded buffer: where each begins, the length that it says, and its offset."""

    data: bytes | bytearray
    places: Numbers
    lengths: Numbers
    offsets: Numbers

    def chosen(self, mask: Mask) -> "Block":
        return Block(self.data, self.places[mask], self.lengths[mask], self.offsets[mask])


class Frames:
    """The columns of a block, each made when it is asked for."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._count = len(block.places)
        self._smalls: Numbers | None = None
        self._known: dict[int, Numbers] = {}

    def __len__(self) -> int:
        return self._count

    # --- numbers ----------------------------------------------------------------------------------

    def offsets(self) -> Numbers:
        return self._block.offsets

    def times_us(self) -> Numbers:
        return words_at(self._block.data, "<i8")[self._block.places + TIME_AT]

    def ttls_s(self) -> Numbers:
        """Of 32 bits without a sign, which Spark has no type for: so as 64."""
        seconds = words_at(self._block.data, "<u4")[self._block.places + TTL_AT]
        return seconds.astype(np.int64)

    def flags(self) -> Numbers:
        return self._small(FLAGS_AT)

    def _small(self, at: int) -> Numbers:
        """A number of two bytes: the four of them stand side by side, and are gathered together."""
        if self._smalls is None:
            self._smalls = words_at(self._block.data, "<i8")[self._block.places + TOPIC_AT]
        if at not in self._known:
            self._known[at] = (self._smalls >> (8 * (at - TOPIC_AT))) & 0xFFFF
        return self._known[at]

    def are_sound(self) -> bool:
        """Whether the parts of every frame fit into it; so without checks nothing is read beside it."""
        parts = self._small(TOPIC_AT) + self._small(KEY_AT) + self._small(HEADERS_AT)
        parts += (self.flags() & PRODUCER != 0) * PRODUCER_PART.size
        return bool((parts + (FRAME.size - HEAD.size) <= self._block.lengths).all())

    # --- texts and bytes --------------------------------------------------------------------------

    def topics(self) -> pa.StringArray:
        starts = self._block.places + FRAME.size
        # A text per frame and what stands between two of them are the values of one array.
        edges = np.empty(2 * self._count + 1, np.int32)
        edges[0:-1:2] = starts
        edges[1::2] = starts + self._small(TOPIC_AT)
        edges[-1] = edges[-2] if self._count else 0
        data = pa.py_buffer(self._block.data)
        both = pa.Array.from_buffers(
            pa.string(), 2 * self._count, [None, pa.py_buffer(edges), data]
        )
        return both.take(pa.array(np.arange(0, 2 * self._count, 2)))

    def has_dollar(self) -> bool:
        """Whether some topic begins with a `$`: a leading wildcard does not take it."""
        octets = np.frombuffer(self._block.data, np.uint8)
        return bool((octets[self._block.places + FRAME.size] == ord("$")).any())

    def keys(self) -> pa.BinaryArray:
        keyed = self.flags() & KEYED != 0
        return self._binary(self._keys_at(), self._small(KEY_AT), keyed)

    def raw_headers(self) -> pa.BinaryArray:
        return self._binary(self._headers_at(), self._small(HEADERS_AT))

    def values(self) -> pa.BinaryArray:
        starts = self._behind_headers() + (self.flags() & PRODUCER != 0) * PRODUCER_PART.size
        ends = self._block.places + HEAD.size + self._block.lengths
        return self._binary(starts, ends - starts, self.flags() & TOMBSTONE == 0)

    def producers(self, at: int) -> pa.Int64Array:
        """The producer (at 0) or the sequence (at 8) of those frames that have one."""
        has = self.flags() & PRODUCER != 0
        found = np.zeros(self._count, np.int64)
        places = self._behind_headers()[has]
        found[has] = words_at(self._block.data, "<i8")[places + at]
        return pa.array(found, mask=~has)

    def headers(self) -> pa.ListArray:
        """Few are different: each is decoded once."""
        encoded = self.raw_headers().dictionary_encode()
        decoded = [
            [{"key": name, "value": value} for name, value in decode_headers(one)]
            for one in encoded.dictionary.to_pylist()
        ]
        return pa.array(decoded, HEADERS_TYPE).take(encoded.indices)

    def _keys_at(self) -> Numbers:
        return self._block.places + FRAME.size + self._small(TOPIC_AT)

    def _headers_at(self) -> Numbers:
        return self._keys_at() + self._small(KEY_AT)

    def _behind_headers(self) -> Numbers:
        return self._headers_at() + self._small(HEADERS_AT)

    def _binary(self, starts: Numbers, lengths: Numbers, valid: Mask | None = None) -> pa.Array:
        if valid is not None and valid.all():
            valid = None
        if valid is not None and not valid.any():
            return pa.nulls(self._count, pa.binary())
        return ByteColumn(self._block.data, starts, lengths).views(valid).cast(pa.binary())


# --- batches --------------------------------------------------------------------------------------

_MAKERS: dict[str, Callable[[Frames], Any]] = {
    "key": Frames.keys,
    "value": Frames.values,
    "offset": lambda frames: pa.array(frames.offsets()),
    "timestamp": lambda frames: _moments(frames.times_us()),
    "headers": Frames.headers,
    "ttl_s": lambda frames: pa.array(frames.ttls_s()),
    "flags": lambda frames: pa.array(frames.flags().astype(np.int32)),
    "producer": lambda frames: frames.producers(0),
    "sequence": lambda frames: frames.producers(8),
    "raw_headers": Frames.raw_headers,
}


def _moments(times_us: Numbers) -> pa.TimestampArray:
    kind = pa.timestamp("us", "UTC")
    return pa.Array.from_buffers(kind, len(times_us), [None, pa.py_buffer(times_us)])


class Batches:
    """Blocks into record batches of a schema: those columns, of the messages that the filters take."""

    def __init__(self, schema: pa.Schema, filters: Sequence[str]) -> None:
        self._schema = schema
        self._matchers = [Matcher(one) for one in filters]
        self._takes_all = any(matcher.takes_all for matcher in self._matchers)
        self._wants_topic = "topic" in schema.names
        self._labels = "", pa.array([], pa.string())
        self._shards = "", pa.array([], pa.int32())

    def batch(self, block: Block, stream: str) -> pa.RecordBatch | None:
        """None if no message of the block is taken."""
        frames = Frames(block)
        topics: pa.Array | None = None
        takes_all = self._takes_all and not frames.has_dollar()
        if not takes_all or self._wants_topic:
            topics = frames.topics()
        if not takes_all:
            mask = self._mask(topics)
            if not mask.all():
                block = block.chosen(mask)
                topics = topics.filter(pa.array(mask)) if topics is not None else None
                frames = Frames(block)
        if not len(frames):
            return None
        columns = [self._column(name, frames, topics, stream) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _mask(self, topics: Any) -> Mask:
        encoded = topics.dictionary_encode()
        taken = [
            any(matcher(name) for matcher in self._matchers)
            for name in encoded.dictionary.to_pylist()
        ]
        mask: Mask = np.array(taken, np.bool_)[encoded.indices.to_numpy()]
        return mask

    def _column(self, name: str, frames: Frames, topics: Any, stream: str) -> Any:
        if name == "topic":
            return topics
        if name == "stream":
            return self._repeated(stream, len(frames))
        if name == "partition":
            return self._partitions(stream, len(frames))
        return _MAKERS[name](frames)

    def _repeated(self, stream: str, count: int) -> Any:
        """The name of the stream in every row: made once, because a block is as long as the one before."""
        label, labels = self._labels
        if label != stream or len(labels) < count:
            labels = pa.repeat(pa.scalar(stream), count + count // 8)
            self._labels = stream, labels
        return labels[:count]

    def _partitions(self, stream: str, count: int) -> Any:
        """The shard in every row, made as often."""
        label, numbers = self._shards
        if label != stream or len(numbers) < count:
            shard = int(stream.rsplit("/", 2)[1])
            numbers = pa.repeat(pa.scalar(shard, pa.int32()), count + count // 8)
            self._shards = stream, numbers
        return numbers[:count]
