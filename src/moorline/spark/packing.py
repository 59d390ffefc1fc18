"""Room: spark. Arrow columns → packed rows for topics (wire.packed_rows), whole batches at a time.

The parts of all frames are joined column by column, and the frames of a chunk sorted by their shard:
nothing here looks at a single row, but for headers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.frame import FRAME, HEAD, KEYED, PRODUCER, PRODUCER_PART, TOMBSTONE
from moorline.wire.packed_rows import PackedRows, names_used
from moorline.wire.shard_choice import shards_of

CONTENT_FIELDS = [
    ("offset", "<u8"),
    ("time_us", "<u8"),
    ("ttl_s", "<u4"),
    ("topic", "<u2"),
    ("key", "<u2"),
    ("headers", "<u2"),
    ("flags", "<u2"),
]
"""The numbers that the content of a frame begins with (core.frames.frame); digests are made of them too."""

_FRAME = np.dtype([("length", "<u4"), ("check", "<u4"), *CONTENT_FIELDS])
assert _FRAME.itemsize == FRAME.size

_ROW_NUMBERS_BYTES = 8
"""What a row has in a chunk beside its frame: its length and its topic."""


class TopicRows(NamedTuple):
    """The columns of a batch, all binary; what a row may not have is checked. A null value is a tombstone."""

    names: list[str]
    topics: Numbers
    values: pa.BinaryArray
    keys: pa.BinaryArray | None
    headers: pa.BinaryArray | None
    ttls_s: Numbers | None


def packed_chunks(rows: TopicRows, shards: int, bytes_max: int) -> Iterator[tuple[bytes, int]]:
    """Chunks of about that many bytes, and how many rows each has; the rows keep their order in a shard."""
    names = pa.array([name.encode() for name in rows.names], pa.binary())
    frames = _frames(rows, names.take(pa.array(rows.topics)))
    # Numbers of two bytes are sorted without comparing them.
    routes = shards_of(_routes(rows), shards)
    lengths = lengths_of(frames)
    name_lengths = lengths_of(names)[rows.topics]
    for first, end in cuts(lengths + name_lengths + _ROW_NUMBERS_BYTES, bytes_max):
        some = routes[first:end]
        order = np.argsort(some, kind="stable")
        used, topics = names_used(rows.names, rows.topics[first:end])
        chunk = PackedRows(
            shards,
            np.cumsum(np.bincount(some, minlength=shards)),
            lengths[first:end][order],
            topics[order],
            used,
            _octets(frames.slice(first, end - first).take(pa.array(order))),
        )
        yield chunk.encoded(), end - first


def cuts(sizes: Numbers, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Runs of rows of about that many bytes; one that is larger goes alone."""
    ends = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(ends):
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = max(end, first + 1)
        yield first, end
        first, before = end, int(ends[end - 1])


def _frames(rows: TopicRows, topics: pa.BinaryArray) -> pa.BinaryArray:
    count = len(rows.topics)
    fixed = np.zeros(count, _FRAME)
    fixed["topic"] = lengths_of(topics)
    fixed["flags"] = PRODUCER
    parts: list[Any] = [topics]
    if rows.keys is not None:
        fixed["key"] = lengths_of(rows.keys)
        fixed["flags"] |= rows.keys.is_valid().to_numpy(zero_copy_only=False) * np.uint16(KEYED)
        parts.append(rows.keys.fill_null(b"") if rows.keys.null_count else rows.keys)
    if rows.headers is not None:
        fixed["headers"] = lengths_of(rows.headers)
        parts.append(rows.headers)
    if rows.ttls_s is not None:
        fixed["ttl_s"] = rows.ttls_s
    values = rows.values
    if values.null_count:
        fixed["flags"] |= values.is_null().to_numpy(zero_copy_only=False) * np.uint16(TOMBSTONE)
        values = values.fill_null(b"")
    parts += [pa.scalar(bytes(PRODUCER_PART.size), pa.binary()), values]
    rest = sum(lengths_of(part) for part in parts if isinstance(part, pa.Array))
    fixed["length"] = rest + PRODUCER_PART.size + FRAME.size - HEAD.size
    edges = np.arange(0, (count + 1) * FRAME.size, FRAME.size, dtype=np.int32)
    heads = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(fixed.tobytes())]
    )
    return pc.binary_join_element_wise(heads, *parts, pa.scalar(b"", pa.binary()))


def _routes(rows: TopicRows) -> Any:
    """What decides the shard: the hash of the key, or of the topic if there is none."""
    import polars
    import polars_hash

    hashes = [xxhash.xxh3_64_intdigest(name.encode()) for name in rows.names]
    by_name = np.array(hashes, np.uint64)[rows.topics]
    if rows.keys is None:
        return by_name
    column = polars.DataFrame({"key": polars.from_arrow(rows.keys.fill_null(b""))})
    hashed = column.select(polars_hash.col("key").nchash.xxh3_64()).to_series().to_numpy()
    is_keyed = rows.keys.is_valid().to_numpy(zero_copy_only=False)
    return np.where(is_keyed, hashed.astype(np.uint64), by_name)


def lengths_of(column: pa.BinaryArray) -> Numbers:
    """The bytes of each item; 0 for null."""
    found: Numbers = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return found


def _octets(column: pa.BinaryArray) -> memoryview:
    """The bytes of all items, one behind the other."""
    edges = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
    return memoryview(column.buffers()[2])[int(edges[0]) : int(edges[len(column)])]
