"""Room: spark. Digests of archived messages, equal to those that nodes compute when they seal a stream.

The content of a message (core/frames/frame.py) is built again from the columns, a whole row group at a time:
the fixed part as a numpy record, the rest joined by Arrow, all of it hashed by polars-hash. Nothing here
looks at a single message.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.frame import PRODUCER, TOMBSTONE
from moorline.core.sets.digest import Digest
from moorline.core.stream import Stream
from moorline.limits import ARCHIVE_READ_ROWS, VERIFY_TASK_BYTES
from moorline.spark.id_sets import Words, hashed
from moorline.spark.jobs.archive_files import COLUMNS, Archive
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.packing import CONTENT_FIELDS

BUCKETS = 256
"""Ranges of offsets that a stream is compared by: a difference costs reading 1/256 of it from the node."""

OUTSIDE = BUCKETS
"""The bucket of offsets that are not in the stream at all."""

_FIXED = np.dtype(CONTENT_FIELDS)
_PRODUCER = np.dtype([("producer", "<u8"), ("sequence", "<u8")])


Buckets = dict[int, Digest]
"""The digest of each range of offsets that has messages."""


class Rows(NamedTuple):
    """Offsets and hashes of the contents, in step."""

    offsets: Numbers
    hashes: Words

    @staticmethod
    def none() -> "Rows":
        return Rows(np.zeros(0, np.int64), np.zeros((0, 2), np.uint64))

    @staticmethod
    def joined(parts: list["Rows"]) -> "Rows":
        if not parts:
            return Rows.none()
        return Rows(
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.hashes for part in parts]),
        )

    def where(self, mask: npt.NDArray[np.bool_]) -> "Rows":
        return Rows(self.offsets[mask], self.hashes[mask])


def contents(batch: pa.RecordBatch) -> pa.Array:
    """The bytes that nodes hash, of every row."""
    topic, key, headers, value = (
        _binary(batch.column(name)) for name in ("topic", "key", "raw_headers", "value")
    )
    # A null that was made empty, or the other way round, is another message.
    is_null = batch.column("value").is_null().to_numpy(zero_copy_only=False)
    flags = _numbers(batch.column("flags")) & ~TOMBSTONE | is_null * TOMBSTONE
    fixed = np.empty(batch.num_rows, _FIXED)
    fixed["offset"] = _numbers(batch.column("offset"))
    fixed["time_us"] = _numbers(batch.column("timestamp").cast(pa.timestamp("us", "UTC")))
    fixed["ttl_s"] = _numbers(batch.column("ttl_s"))
    for name, column in (("topic", topic), ("key", key), ("headers", headers)):
        fixed[name] = pc.binary_length(column).to_numpy(zero_copy_only=False)
    fixed["flags"] = flags
    parts = [_packed(fixed), topic, key, headers]
    if (flags & PRODUCER).any():
        parts.append(_producers(batch, flags))
    return pc.binary_join_element_wise(*parts, value, pa.scalar(b"", pa.binary()))


def hashed_rows(batch: pa.RecordBatch) -> Rows:
    if not batch.num_rows:
        return Rows.none()
    return Rows(_numbers(batch.column("offset")), hashed(contents(batch)))


def batches_of(archive: Archive, path: str) -> Iterator[pa.RecordBatch]:
    """The messages of a file, checksums of its pages looked at."""
    with archive.files.open_input_file(archive.full(path)) as source:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        absent = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if absent:
            raise pa.ArrowInvalid(f"it has no column {', '.join(absent)}")
        yield from file.iter_batches(ARCHIVE_READ_ROWS, columns=list(COLUMNS))


def rows_of(archive: Archive, path: str) -> Rows:
    return Rows.joined([hashed_rows(batch) for batch in batches_of(archive, path)])


def problem_of(archive: Archive, file: ArchivedFile) -> str | None:
    """What can be seen without reading it."""
    info = archive.files.get_file_info(archive.full(file.path))
    if not info.is_file:
        return "is gone"
    if info.size != file.size_bytes:
        return f"has {info.size} bytes, not the {file.size_bytes} that were written"
    return None


def change_of(archive: Archive, file: ArchivedFile) -> str | None:
    """What is wrong with its bytes, all of them read."""
    problem = problem_of(archive, file)
    if problem is None and file.hash and archive.hash_of(file.path) != file.hash:
        return "has other bytes than were written"
    return problem


# --- by bucket --------------------------------------------------------------------------------------


class BucketDigests:
    """Counts and digests of a stream's buckets, summed up piece by piece."""

    def __init__(self, first: int, end: int) -> None:
        self._first = first
        self._end = end
        self.counts = np.zeros(BUCKETS + 1, np.int64)
        self.halves = np.zeros((BUCKETS + 1, 2), np.uint64)

    def add(self, rows: Rows) -> None:
        if not len(rows.offsets):
            return
        buckets = bucket_of(rows.offsets, self._first, self._end)
        self.counts += np.bincount(buckets, minlength=BUCKETS + 1)
        # Files are in the order of offsets, mostly: few runs, however many rows.
        starts = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])
        mixed = np.bitwise_xor.reduceat(rows.hashes, starts, axis=0)
        np.bitwise_xor.at(self.halves, buckets[starts], mixed)

    def told(self) -> list[tuple[int, int, str]]:
        """(bucket, count, hash) of those that are not empty."""
        used = np.flatnonzero(self.counts)
        return [(int(at), int(self.counts[at]), _hex(self.halves[at])) for at in used]


def bucket_of(offsets: Numbers, first: int, end: int) -> Numbers:
    inside = (offsets >= first) & (offsets < end)
    places = (offsets - first) * BUCKETS // max(1, end - first)
    return np.where(inside, places, OUTSIDE).astype(np.int64)


def bucket_range(bucket: int, first: int, end: int) -> tuple[int, int]:
    """The offsets of a bucket: from the first to before the second."""
    size = end - first
    return first - (-bucket * size // BUCKETS), first - (-(bucket + 1) * size // BUCKETS)


def differing_ranges(
    first: int, end: int, one: Buckets, other: Buckets, unread: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Offsets of the buckets that differ or cannot be read whole, those next to each other together."""
    ranges: list[tuple[int, int]] = []
    for bucket in range(BUCKETS):
        start, upto = bucket_range(bucket, first, end)
        is_whole = not any(begin < upto and stop > start for begin, stop in unread)
        if is_whole and one.get(bucket) == other.get(bucket):
            continue
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], upto)
        elif start < upto:
            ranges.append((start, upto))
    return ranges


def unread_range(text: str) -> tuple[int, int]:
    """As `digest_node` names what it could not read."""
    first, _, upto = text.partition("-")
    return int(first), int(upto)


def shared_out(files: list[ArchivedFile]) -> list[list[ArchivedFile]]:
    """Parts of about the same work."""
    parts: list[list[ArchivedFile]] = []
    size = VERIFY_TASK_BYTES
    for file in files:
        if size >= VERIFY_TASK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.size_bytes
    return parts


def total(buckets: Buckets) -> Digest:
    digest = Digest.empty()
    for bucket in buckets.values():
        digest = digest.merge(bucket)
    return digest


# --- in the workers ---------------------------------------------------------------------------------


class FileBatch(msgspec.Struct, frozen=True):
    """Files of one stream that a task reads; messages `first` to before `end` are in the stream."""

    where: str
    stream: Stream
    first: int
    end: int
    files: list[ArchivedFile]


class StreamDigests(msgspec.Struct, frozen=True):
    """What a task found of a stream; which files could not be read, and which can be but were changed."""

    stream: Stream
    buckets: list[tuple[int, int, str]]
    problems: list[tuple[str, str]]
    changed: list[tuple[str, str]] = []


def digest_files(item: bytes) -> Iterator[StreamDigests]:
    batch = msgspec.json.decode(item, type=FileBatch)
    archive = Archive(batch.where)
    digests = BucketDigests(batch.first, batch.end)
    problems: list[tuple[str, str]] = []
    changed: list[tuple[str, str]] = []
    for file in batch.files:
        rows, problem = read_file(archive, file)
        if rows is not None:
            digests.add(rows)
        if problem:
            (changed if rows is not None else problems).append((file.path, problem))
    yield StreamDigests(batch.stream, digests.told(), problems, changed)


def look_at_files(item: bytes) -> Iterator[StreamDigests]:
    """Whether files have the bytes that were written, whatever these say."""
    batch = msgspec.json.decode(item, type=FileBatch)
    archive = Archive(batch.where)
    found = [(file.path, change_of(archive, file)) for file in batch.files]
    yield StreamDigests(batch.stream, [], [(path, text) for path, text in found if text])


def read_file(archive: Archive, file: ArchivedFile) -> tuple[Rows | None, str]:
    """All of a file, and what is wrong with its bytes; no rows where it cannot be read to its end.

    A part of it is worth nothing: nobody knows which.
    """
    problem = change_of(archive, file) or ""
    try:
        return rows_of(archive, file.path), problem
    except FileNotFoundError:
        return None, "is gone"
    except (OSError, pa.ArrowException, pa.ArrowInvalid) as error:
        return None, problem or f"cannot be read: {error}"


def merged(found: list[StreamDigests]) -> dict[Stream, Buckets]:
    """The buckets of every stream, from all tasks."""
    streams: dict[Stream, Buckets] = {}
    for one in found:
        buckets = streams.setdefault(one.stream, {})
        for bucket, count, text in one.buckets:
            digest = Digest(count, bytes.fromhex(text))
            buckets[bucket] = buckets.get(bucket, Digest.empty()).merge(digest)
    return streams


def _hex(halves: Any) -> str:
    high, low = (int(half) for half in halves)
    return ((high << 64) | low).to_bytes(16, "big").hex()


def _numbers(column: pa.Array) -> Numbers:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.fill_null(column.cast(pa.binary()), b"")


def _packed(records: npt.NDArray[Any]) -> pa.Array:
    """Numpy records as binary values."""
    size = records.dtype.itemsize
    places = np.arange(len(records) + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(
        pa.binary(), len(records), [None, pa.py_buffer(places), pa.py_buffer(records.tobytes())]
    )


def _producers(batch: pa.RecordBatch, flags: Numbers) -> pa.Array:
    records = np.empty(batch.num_rows, _PRODUCER)
    for name in ("producer", "sequence"):
        records[name] = _numbers(pc.fill_null(batch.column(name), 0)).view(np.uint64)
    named = pa.array((flags & PRODUCER) != 0)
    return pc.if_else(named, _packed(records), pa.scalar(b"", pa.binary()))
