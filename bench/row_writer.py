"""The peer of the Arrow writer: the same write, by the rows that Spark hands to a Python writer."""

import itertools
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from moorline.spark.writer import BatchWriter, writer

ROWS_AT_ONCE = 10_000
SCHEMA = pa.schema([("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary())])


class RowSource(DataSource):
    """`bench_rows`."""

    @classmethod
    def name(cls) -> str:
        return "bench_rows"

    def writer(self, schema: StructType, overwrite: bool) -> "RowWriter":
        made = writer(self.options, schema, overwrite)
        assert isinstance(made, BatchWriter)
        return RowWriter(made)


class RowWriter(DataSourceWriter):
    """Staged and committed as ours; only the way of the rows is another."""

    def __init__(self, ours: BatchWriter) -> None:
        self._ours = ours

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._ours.write(_batches(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._ours.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._ours.abort(messages)


def _batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
        columns = zip(*some, strict=True)
        arrays = [
            pa.array(list(column), kind) for column, kind in zip(columns, SCHEMA.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
