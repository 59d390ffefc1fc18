"""Room: spark. Parquet files of an archive, in a worker.

Written: as many of a folder as the size asks for. Read by jobs that must not go on with a changed file.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from moorline.errors import DriftFound
from moorline.limits import (
    ARCHIVE_FILE_BYTES,
    ARCHIVE_PAGE_BYTES,
    ARCHIVE_PAGE_ROWS,
    ARCHIVE_READ_ROWS,
    ARCHIVE_ROW_GROUP_BYTES,
    ARCHIVE_ROW_GROUP_ROWS,
)
from moorline.spark.jobs.archive_files import COLUMNS, Archive, statistics
from moorline.spark.jobs.digests import batches_of, change_of, hashed_rows, problem_of
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.jobs.ttl_bits import to_bits

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("ttl_s", pa.int32()),
        ("flags", pa.int32()),
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("raw_headers", pa.binary()),
        ("producer", pa.int64()),
        ("sequence", pa.int64()),
        ("value", pa.binary()),
    ]
)
assert tuple(SCHEMA.names) == COLUMNS

_TTL_AT = SCHEMA.names.index("ttl_s")
SCHEMA_AS_READ = SCHEMA.set(_TTL_AT, pa.field("ttl_s", pa.int64()))
"""As the data source makes it."""


def as_archived(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What the source made, as the files of an archive have it."""
    bits = to_bits(batch.column(_TTL_AT))
    columns = [*batch.columns[:_TTL_AT], bits, *batch.columns[_TTL_AT + 1 :]]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def by_topic(table: pa.Table) -> pa.Table:
    """The same rows, those of a topic side by side: who reads one passes over the pages of the others."""
    table = table.combine_chunks()
    topics = table.column("topic").chunk(0).dictionary_encode()
    names = topics.dictionary.to_pylist()
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    offsets = table.column("offset").to_numpy()
    return table.take(np.lexsort((offsets, ranks[topics.indices.to_numpy()])))


class PartWriter:
    """Takes batches, writes files under names that nobody else draws; `files` are there at the end."""

    def __init__(self, target: Archive, folder: str, *, is_proven: bool) -> None:
        self.files: list[ArchivedFile] = []
        self._taken = RowSum() if is_proven else None
        self._target = target
        self._folder = folder
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._path = ""
        self._sink: Any = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        taken = batch.select(list(COLUMNS)).cast(SCHEMA)
        self._waiting.append(taken)
        if self._taken is not None:
            self._taken.add(taken)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ARCHIVE_ROW_GROUP_ROWS or self._bytes >= ARCHIVE_ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._target.make_folder(self._folder)
            self._path = f"{self._folder}/part-{uuid.uuid4().hex}.parquet"
            self._sink = self._target.files.open_output_stream(self._target.full(self._path))
            self._writer = pq.ParquetWriter(
                self._sink,
                SCHEMA,
                compression="zstd",
                data_page_size=ARCHIVE_PAGE_BYTES,
                max_rows_per_page=ARCHIVE_PAGE_ROWS,
                write_page_index=True,
                write_page_checksum=True,
            )
        table = by_topic(pa.Table.from_batches(self._waiting, SCHEMA))
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting, self._rows, self._bytes = [], 0, 0
        if self._sink.tell() >= ARCHIVE_FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
            self._writer = self._sink = None
            self.files.append(self._target.described(self._path))

    def end(self) -> None:
        self._write_group()
        self._end_file()
        if self._taken is not None:
            self._prove(self._taken)

    def _prove(self, taken: "RowSum") -> None:
        """Reads back what was written: the files that it takes the place of go because of it."""
        found = RowSum()
        for file in self.files:
            for batch in batches_of(self._target, file.path):
                found.add(batch)
        if found != taken:
            raise DriftFound(
                f"{self._target.uri(self._folder)} does not read as what was written: nothing was changed; "
                "look at the disk, and run this again"
            )

    def drop(self) -> None:
        """What is there has no entry and counts for nothing: nobody should find it either."""
        if self._writer is not None:
            self._sink.close()
            self._target.remove(self._path)
        for file in self.files:
            self._target.remove(file.path)


class RowSum:
    """How many rows, and the sum of the hashes of their contents: equal for equal rows in any order.

    A sum and no XOR: a row that is there twice must not vanish.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = np.zeros(2, np.uint64)

    def add(self, batch: pa.RecordBatch) -> None:
        rows = hashed_rows(batch)
        self.count += len(rows.offsets)
        self.total += rows.hashes.sum(axis=0, dtype=np.uint64)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, RowSum)
        return self.count == other.count and bool((self.total == other.total).all())

    __hash__ = None  # type: ignore[assignment]


@contextlib.contextmanager
def part_writer(target: Archive, folder: str, *, is_proven: bool = False) -> Iterator[PartWriter]:
    """Its files are whole behind the block, and with `is_proven` read back; an error in it leaves none."""
    writer = PartWriter(target, folder, is_proven=is_proven)
    try:
        yield writer
        writer.end()
    except BaseException:
        writer.drop()
        raise


def check_unchanged(archive: Archive, file: ArchivedFile) -> None:
    """Refuses a file with other bytes than were written."""
    change = change_of(archive, file)
    if change is not None:
        raise _changed(archive, file, change)


def rows_between(
    archive: Archive,
    file: ArchivedFile,
    first: int,
    upto: int,
    columns: Sequence[str] = COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """The row groups with messages `first` to before `upto`; refuses a file that is not as it was written."""
    problem = problem_of(archive, file)
    if problem is not None:
        raise _changed(archive, file, problem)
    try:
        with archive.files.open_input_file(archive.full(file.path)) as source:
            opened = pq.ParquetFile(source, page_checksum_verification=True)
            if opened.metadata.num_rows != file.rows:
                text = f"has {opened.metadata.num_rows} messages, not the {file.rows} that were written"
                raise _changed(archive, file, text)
            groups = [
                number
                for number, known in enumerate(statistics(opened.metadata, "offset"))
                if known is None or (known.min < upto and known.max >= first)
            ]
            if groups:
                yield from opened.iter_batches(ARCHIVE_READ_ROWS, groups, list(columns))
    except (OSError, pa.ArrowException) as error:
        raise _changed(archive, file, f"cannot be read: {error}") from error


def _changed(archive: Archive, file: ArchivedFile, text: str) -> DriftFound:
    return DriftFound(
        f"{archive.uri(file.path)} {text}: `moor pipeline verify --repair` puts it right"
    )
