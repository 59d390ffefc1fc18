"""Room: wire. Rows for topics as they wait in a stage: frames that lack what only the node can say.

    rows    count    u32
            shards   u32  the rows are sorted by the shard of so many that they go to
            names    u32  bytes of the names
            zero     u32
            runs     u32 × shards  how many rows go to each shard
            lengths  u32 × count   bytes of each frame
            topics   u32 × count   its topic, as a place among the names
            names    msgpack of a list of texts
            frames   as wire.segment draws them, with PRODUCER among the flags, and zeros for check,
                     offset, time, producer and sequence

The rows of one shard stand together, in the order in which they were written: a node with as many shards
fills in the zeros of all of them at once, and appends them as they are. Little-endian.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from moorline.core.frames.byte_columns import ByteColumn, Numbers, words_at
from moorline.core.frames.fields import OFFSET_AT, TIME_AT, Sizes
from moorline.core.frames.frame import (
    FRAME,
    HEAD,
    KEYED,
    PRODUCER,
    PRODUCER_PART,
    TOMBSTONE,
    decode_headers,
    encode_headers,
)
from moorline.errors import Malformed
from moorline.limits import PACKED_SHARDS_MAX
from moorline.wire.bounds import FilterText, RowsMax
from moorline.wire.shard_choice import hash_of, shards_of
from moorline.wire.topic import Record

_HEAD = struct.Struct("<IIII")
_encoder = msgspec.msgpack.Encoder()
Names = Annotated[list[FilterText], RowsMax]
"""Topics; whether each of them is one is checked apart."""
_names_decoder = msgspec.msgpack.Decoder(Names)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """A chunk of rows. `ends[s]` is behind the last row of shard `s`."""

    shards: int
    ends: Numbers
    lengths: Numbers
    topics: Numbers
    names: list[str]
    frames: bytes | memoryview

    @property
    def count(self) -> int:
        return len(self.lengths)

    def positions(self) -> Numbers:
        """Where each frame begins."""
        return np.cumsum(self.lengths) - self.lengths

    def encoded(self) -> bytes:
        names = _encoder.encode(self.names)
        runs = np.diff(self.ends, prepend=0)
        numbers = [part.astype("<u4").tobytes() for part in (runs, self.lengths, self.topics)]
        head = _HEAD.pack(self.count, self.shards, len(names), 0)
        return b"".join((head, *numbers, names, self.frames))

    def _shards(self, positions: Numbers, sizes: Sizes, shards: int) -> npt.NDArray[np.uint16]:
        """The shard of each row: by the hash of its key, or of its topic if it has none.

        Numbers of two bytes, which are sorted without comparing them.
        """
        by_name = np.array([hash_of(name.encode()) for name in self.names], np.uint64)
        found = by_name[self.topics]
        keyed = np.flatnonzero(sizes.flags & KEYED)
        starts = positions + FRAME.size + sizes.topics
        found[keyed] = ByteColumn(self.frames, starts[keyed], sizes.keys[keyed]).hashes()
        return shards_of(found, shards)

    def sorted_by(self, shards: int) -> tuple["PackedRows", Numbers]:
        """The same rows for another number of shards, and the place that each of them had."""
        starts = self.positions()
        routes = self._shards(starts, Sizes.of(self.frames, starts), shards)
        order = np.argsort(routes, kind="stable")
        view = memoryview(self.frames)
        slices = map(slice, starts[order].tolist(), (starts + self.lengths)[order].tolist())
        frames = b"".join(map(view.__getitem__, slices))
        ends = np.cumsum(np.bincount(routes, minlength=shards))
        lengths, topics = self.lengths[order], self.topics[order]
        return PackedRows(shards, ends, lengths, topics, self.names, frames), order

    def check(self) -> Sizes:
        """Refuses frames that are not what the numbers say they are; what they are, otherwise.

        From here on the node relies on it. Sizes that have a limit are the caller's to check.
        """
        positions = self.positions()
        if self.count and int(self.lengths.min()) < FRAME.size + PRODUCER_PART.size:
            raise Malformed("a row is shorter than a frame")
        sizes = Sizes.of(self.frames, positions)
        said = words_at(self.frames, "<u4")[positions].astype(np.int64)
        parts = sizes.topics + sizes.keys + sizes.headers + PRODUCER_PART.size + FRAME.size
        if not np.array_equal(said + HEAD.size, self.lengths) or (parts > self.lengths).any():
            raise Malformed("the parts of a row do not fit its length")
        if not (sizes.flags & PRODUCER).all():
            raise Malformed("a row without a place for its producer")
        if sizes.keys[sizes.flags & KEYED == 0].any():
            raise Malformed("a row without a key has bytes of one")
        if (self.lengths > parts)[sizes.flags & TOMBSTONE != 0].any():
            raise Malformed("a tombstone has a body")
        self._check_topics(positions, sizes.topics)
        self._check_headers(positions, sizes)
        shards = np.repeat(np.arange(self.shards), np.diff(self.ends, prepend=0))
        if not np.array_equal(self._shards(positions, sizes, self.shards), shards):
            raise Malformed("a row stands among those of another shard")
        return sizes

    def _check_topics(self, positions: Numbers, lengths: Numbers) -> None:
        names = [name.encode() for name in self.names]
        if len(set(names)) != len(names) or len(np.unique(self.topics)) != len(names):
            raise Malformed("every topic is named once, and has a row")
        if not np.array_equal(np.array([len(name) for name in names])[self.topics], lengths):
            raise Malformed("a row has another topic than it says")
        if not ByteColumn(self.frames, positions + FRAME.size, lengths).are(names, self.topics):
            raise Malformed("a row has another topic than it says")

    def _check_headers(self, positions: Numbers, sizes: Sizes) -> None:
        some = np.flatnonzero(sizes.headers)
        starts = (positions + FRAME.size + sizes.topics + sizes.keys)[some]
        view = memoryview(self.frames)
        ends = starts + sizes.headers[some]
        for headers in {
            bytes(view[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }:
            decode_headers(headers)


def unpacked(data: bytes) -> PackedRows:
    """The rows of a chunk; that it has the right size is checked here, the rest is `check`'s."""
    if len(data) < _HEAD.size:
        raise Malformed("these are no rows for topics")
    count, shards, names_bytes, zero = _HEAD.unpack_from(data)
    at = _HEAD.size
    if zero or not 0 < shards <= PACKED_SHARDS_MAX or 4 * (shards + 2 * count) + at > len(data):
        raise Malformed("these are no rows for topics")
    numbers = np.frombuffer(data, "<u4", shards + 2 * count, at).astype(np.int64)
    runs, lengths, topics = np.split(numbers, (shards, shards + count))
    at += 4 * (shards + 2 * count)
    if at + names_bytes > len(data):
        raise Malformed("these are no rows for topics: the names are cut off")
    try:
        names = _names_decoder.decode(memoryview(data)[at : at + names_bytes])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"these are no rows for topics: {error}") from error
    frames = memoryview(data)[at + names_bytes :]
    if runs.sum() != count or lengths.sum() != len(frames):
        raise Malformed("these are no rows for topics: the numbers do not add up")
    if count and int(topics.max()) >= len(names):
        raise Malformed("these are no rows for topics: a topic has no name")
    return PackedRows(shards, np.cumsum(runs), lengths, topics, names, frames)


def packed(records: Iterable[Record], shards: int) -> PackedRows:
    """Rows one by one, for few of them; Spark's tasks make whole columns of them."""
    known: dict[str, int] = {}
    frames, topics = [], []
    for record in records:
        topic, key = record.topic.encode(), record.key or b""
        headers = encode_headers(record.headers)
        flags = record.flags | PRODUCER | (KEYED if record.key is not None else 0)
        rest = topic + key + headers + bytes(PRODUCER_PART.size) + record.body
        length = FRAME.size - HEAD.size + len(rest)
        sizes = len(topic), len(key), len(headers)
        frames.append(FRAME.pack(length, 0, 0, 0, record.ttl_s, *sizes, flags) + rest)
        topics.append(known.setdefault(record.topic, len(known)))
    lengths = np.array([len(frame) for frame in frames], np.int64)
    unsorted = PackedRows(
        1,
        np.array([len(frames)]),
        lengths,
        np.array(topics, np.int64),
        list(known),
        b"".join(frames),
    )
    return unsorted.sorted_by(shards)[0]


def names_used(names: list[str], topics: Numbers) -> tuple[list[str], Numbers]:
    """Of some rows: those names that they have, and which of these is each row's topic."""
    used = np.flatnonzero(np.bincount(topics, minlength=len(names)))
    places = np.empty(len(names), np.int64)
    places[used] = np.arange(len(used))
    return [names[place] for place in used.tolist()], places[topics]


class Stamps(NamedTuple):
    """What only the node can say of each row."""

    offsets: Numbers
    times_us: Numbers
    producer: int
    sequences: Numbers


class Filled(NamedTuple):
    """The frames of a chunk with all but their checks, which need a segment's seed."""

    frames: bytearray
    flags: Numbers


def filled(rows: PackedRows, stamps: Stamps) -> Filled:
    frames = bytearray(rows.frames)
    places = rows.positions()
    sizes = Sizes.of(frames, places)
    numbers = words_at(frames, "<u8")
    numbers[places + OFFSET_AT] = stamps.offsets
    numbers[places + TIME_AT] = stamps.times_us
    behind = places + FRAME.size + sizes.topics + sizes.keys + sizes.headers
    numbers[behind] = stamps.producer
    numbers[behind + 8] = stamps.sequences
    return Filled(frames, sizes.flags)
