"""Room: spark. Parquet files of an archive, written in a worker: as many of a folder as the size asks for."""

import uuid
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moorline.spark.jobs.archive_files import COLUMNS, Archive, ArchivedFile

ROW_GROUP_ROWS = 262_144
"""Rows of a row group: large enough to be read at speed, small enough for a worker's memory."""

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""The same in bytes, for large messages."""

FILE_BYTES = 256 * 1024 * 1024
"""Size at which another file is begun."""

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


class PartWriter:
    """Takes batches, writes files under names that nobody else draws; `files` are there at the end."""

    def __init__(self, target: Archive, folder: str) -> None:
        self.files: list[ArchivedFile] = []
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
        self._waiting.append(batch.select(list(COLUMNS)).cast(SCHEMA))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._target.make_folder(self._folder)
            self._path = f"{self._folder}/part-{uuid.uuid4().hex}.parquet"
            self._sink = self._target.files.open_output_stream(self._target.full(self._path))
            self._writer = pq.ParquetWriter(
                self._sink, SCHEMA, compression="zstd", write_page_checksum=True
            )
        table = pa.Table.from_batches(self._waiting, SCHEMA)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting, self._rows, self._bytes = [], 0, 0
        if self._sink.tell() >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
            self._writer = self._sink = None
            self.files.append(self._target.described(self._path))

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write_group()
            self._end_file()
        elif self._writer is not None:
            # What is there has no entry and counts for nothing.
            self._sink.close()
