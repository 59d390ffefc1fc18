"""Room: spark. What tasks of `materialize` do: messages into buckets, then each bucket into its new file.

    stage_range    a range of a stream: what it says of each key, newest first of all, a row group a bucket
    merge_bucket   a file of before and what was staged for its bucket: the file of the next state
    check_file     whether a file has the bytes that were written

Which message of a key is the newest is said by core/records/merge.py.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from moorline.core.records.merge import Begun, Position, Told, merge, read_message
from moorline.core.records.row_hash import digest_of_rows
from moorline.core.records.table import Key
from moorline.core.stream import Stream
from moorline.errors import DriftFound, MessagesGone
from moorline.limits import (
    ARCHIVE_READ_ROWS,
    MATERIALIZE_STAGED_BYTES,
    MATERIALIZED_ROW_GROUP_ROWS,
)
from moorline.spark.jobs.materialized import STAGE, BucketFile, MaterializedTable

ROWS = pa.schema(
    [
        ("key", pa.string()),
        ("seq", pa.int64()),
        ("row", pa.string()),
        ("snapshot", pa.int64()),
        ("sequence", pa.int64()),
    ]
)
STAGED = ROWS.append(pa.field("is_deletion", pa.bool_()))

_key_decoder = msgspec.json.Decoder(tuple[str, ...])

Group = tuple[int, int]
"""A bucket, and the number of a row group with messages of it."""


class StreamRange(msgspec.Struct, frozen=True):
    """Messages `first` to before `upto` of a stream, for one task."""

    where: str
    run: str
    source: dict[str, str]
    addresses: list[str]
    stream: Stream
    first: int
    upto: int
    topic: str
    buckets: int


class StagedPart(msgspec.Struct, frozen=True):
    """What a task found: the highest snapshot and whether it begins there, and where messages are staged."""

    messages: int
    strangers: int
    """Messages of the topic that are none of a published table."""
    snapshot: int
    begun: list[tuple[int, str]]
    path: str
    groups: list[Group]


class BucketWork(msgspec.Struct, frozen=True):
    where: str
    number: int
    bucket: int
    snapshot: int
    before: BucketFile | None
    staged: list[tuple[str, list[int]]]
    """Paths, and their row groups with this bucket."""
    salt: str


class FileCheck(msgspec.Struct, frozen=True):
    where: str
    file: BucketFile


class Checked(msgspec.Struct, frozen=True):
    problem: str | None


def bucket_of(key_text: bytes, buckets: int) -> int:
    return xxhash.xxh3_64_intdigest(key_text) % buckets


# --- messages into buckets ------------------------------------------------------------------------


def stage_range(item: bytes) -> Iterator[StagedPart]:
    """In a worker."""
    from moorline.spark.jobs.node_side import NodeGap, node_rows

    wanted = msgspec.json.decode(item, type=StreamRange)
    staging = _Staging(wanted)
    rows = node_rows(
        wanted.source,
        wanted.addresses,
        wanted.stream,
        wanted.first,
        wanted.upto,
        [wanted.topic],
    )
    for found in rows:
        if isinstance(found, NodeGap):
            raise MessagesGone(
                f"{found.upto - found.first} messages of {wanted.stream.shard}, {found.first} to "
                f"{found.upto - 1}: {found.text}"
            )
        for body, sequence in zip(
            found.column("value").to_pylist(), found.column("sequence").to_pylist(), strict=True
        ):
            staging.take(body, sequence)
    yield staging.end()


class _Staging:
    """Of each key the newest that this range says; written when it is much, and at the end."""

    def __init__(self, wanted: StreamRange) -> None:
        self._target = MaterializedTable(wanted.where)
        self._folder = f"{STAGE}/{wanted.run}"
        self._path = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        self._buckets = wanted.buckets
        self._newest: dict[Key, Told] = {}
        self._bytes = 0
        self._snapshot = 0
        self._messages = self._strangers = 0
        self._begun: dict[int, str] = {}
        self._groups: list[Group] = []
        self._sink: Any = None
        self._writer: Any = None

    def take(self, body: bytes | None, sequence: int | None) -> None:
        said = read_message(body, sequence) if body is not None and sequence is not None else None
        if said is None:
            self._strangers += 1
            return
        self._messages += 1
        snapshot = said.snapshot if isinstance(said, Begun) else said.position.snapshot
        if snapshot > self._snapshot:
            # What was said before is forgotten wherever it is merged.
            self._snapshot, self._bytes = snapshot, 0
            self._newest.clear()
        if isinstance(said, Begun):
            self._begun[said.snapshot] = said.table
            return
        held = self._newest.get(said.key)
        if snapshot < self._snapshot or (held is not None and held.position >= said.position):
            return
        self._newest[said.key] = said
        self._bytes += len(body or b"") + 200
        if self._bytes >= MATERIALIZE_STAGED_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._newest:
            return
        by_bucket: dict[int, list[tuple[str, Told]]] = defaultdict(list)
        for key, told in self._newest.items():
            text = msgspec.json.encode(key)
            by_bucket[bucket_of(text, self._buckets)].append((text.decode(), told))
        if self._writer is None:
            self._target.make_folder(self._folder)
            self._sink = self._target.files.open_output_stream(self._target.full(self._path))
            self._writer = pq.ParquetWriter(
                self._sink, STAGED, compression="zstd", write_page_checksum=True
            )
        for bucket, some in sorted(by_bucket.items()):
            self._groups.append((bucket, len(self._groups)))
            table = _staged(some)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._newest.clear()
        self._bytes = 0

    def end(self) -> StagedPart:
        self._write()
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        return StagedPart(
            self._messages,
            self._strangers,
            self._snapshot,
            sorted(self._begun.items()),
            self._path if self._groups else "",
            self._groups,
        )


def _staged(some: list[tuple[str, Told]]) -> pa.Table:
    return pa.Table.from_arrays(
        [*_columns(some), pa.array([told.is_deletion for _, told in some], pa.bool_())],
        schema=STAGED,
    )


def _columns(some: list[tuple[str, Told]]) -> list[pa.Array]:
    return [
        pa.array([text for text, _ in some], pa.string()),
        pa.array([told.seq for _, told in some], pa.int64()),
        pa.array([told.row.decode() if told.row else None for _, told in some], pa.string()),
        pa.array([told.position.snapshot for _, told in some], pa.int64()),
        pa.array([told.position.sequence for _, told in some], pa.int64()),
    ]


# --- each bucket into its new file ----------------------------------------------------------------


def merge_bucket(item: bytes) -> Iterator[BucketFile]:
    """In a worker. A bucket without rows has no file, and says so by an empty path."""
    work = msgspec.json.decode(item, type=BucketWork)
    target = MaterializedTable(work.where)
    old = _old(target, work.before)
    keys = [_key_decoder.decode(text) for text in old.column("key").to_pylist()]
    positions = zip(
        old.column("snapshot").to_pylist(), old.column("sequence").to_pylist(), strict=True
    )
    merged = merge(
        list(zip(keys, (Position(*one) for one in positions), strict=True)),
        _told(target, work.staged, work.snapshot),
        work.snapshot,
    )
    put = [(msgspec.json.encode(told.key).decode(), told) for told in merged.put]
    rows = pa.concat_tables(
        [
            old.take(pa.array(merged.kept, pa.int64())),
            pa.Table.from_arrays(_columns(put), schema=ROWS),
        ]
    )
    yield _written(target, work, rows)


def _old(target: MaterializedTable, file: BucketFile | None) -> pa.Table:
    if file is None or not file.path:
        return ROWS.empty_table()
    problem = target.problem_of(file)
    if problem is not None:
        raise DriftFound(f"{problem}: --rebuild reads all of the topic anew")
    return _read(target, file.path).cast(ROWS)


def _read(target: MaterializedTable, path: str) -> pa.Table:
    with target.files.open_input_file(target.full(path)) as source:
        return pq.ParquetFile(source, page_checksum_verification=True).read()


def _told(
    target: MaterializedTable, staged: list[tuple[str, list[int]]], snapshot: int
) -> Iterator[Told]:
    for path, groups in staged:
        with target.files.open_input_file(target.full(path)) as source:
            opened = pq.ParquetFile(source, page_checksum_verification=True)
            for batch in opened.iter_batches(ARCHIVE_READ_ROWS, groups):
                for row in batch.to_pylist():
                    if row["snapshot"] != snapshot:
                        continue
                    text = row["row"]
                    yield Told(
                        _key_decoder.decode(row["key"]),
                        Position(row["snapshot"], row["sequence"]),
                        row["seq"],
                        None if text is None else text.encode(),
                        row["is_deletion"],
                    )


def _written(target: MaterializedTable, work: BucketWork, rows: pa.Table) -> BucketFile:
    if not rows.num_rows:
        return BucketFile(work.bucket, "", 0, 0, "", str(digest_of_rows(0, [])))
    folder = target.folder_of(work.number, work.bucket)
    target.make_folder(folder)
    path = f"{folder}/part-{uuid.uuid4().hex}.parquet"
    with target.files.open_output_stream(target.full(path)) as sink:
        pq.write_table(
            rows,
            sink,
            compression="zstd",
            row_group_size=MATERIALIZED_ROW_GROUP_ROWS,
            write_page_checksum=True,
        )
    digest = ""
    if work.salt:
        # Of what is there to be read, and not of what was meant to be written.
        found = _read(target, path)
        keys = (_key_decoder.decode(text) for text in found.column("key").to_pylist())
        pairs = zip(keys, found.column("seq").to_pylist(), strict=True)
        digest = str(digest_of_rows(int(work.salt, 16), pairs))
    size = int(target.files.get_file_info(target.full(path)).size)
    return BucketFile(work.bucket, path, rows.num_rows, size, target.hash_of(path), digest)


def check_file(item: bytes) -> Iterator[Checked]:
    """In a worker."""
    wanted = msgspec.json.decode(item, type=FileCheck)
    yield Checked(MaterializedTable(wanted.where).problem_of(wanted.file))
