"""Room: spark. Messages that are gone, as rows: so a query sees its gaps wherever it runs.

Tasks run in processes of their own, and their logs are not where people look. With the column `gap` each
range that could not be read is a row of its own: `stream` and `offset` say where it begins, `gap` has the
messages `first` to before `upto` and the reason, and everything else is null. Of messages, `gap` is null.
Where a query goes on, and whether a gap fails it, is decided in `topic_reader.py`; `planning.py` finds gaps.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from moorline.spark.planning import ShardGap

GAP = "gap"


class GapPartition(InputPartition):
    """What the planner found to be gone, as a task: rows come from tasks only."""

    def __init__(self, gaps: Sequence[ShardGap]) -> None:
        super().__init__(None)
        self.gaps = list(gaps)


def without_gap(schema: StructType) -> StructType:
    """What is read of messages; at least one column, because rows without any are not counted."""
    kept = [field for field in schema.fields if field.name != GAP]
    return StructType(kept) if kept else StructType().add("offset", "long")


def of_messages(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that was read without the column, with it."""
    columns = [
        pa.nulls(batch.num_rows, field.type) if field.name == GAP else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def of_gaps(gaps: Iterable[ShardGap], schema: pa.Schema) -> pa.RecordBatch:
    """A row for each."""
    rows = [
        {
            "stream": one.shard,
            "offset": one.first,
            GAP: {"first": one.first, "upto": one.upto, "reason": one.reason},
        }
        for one in gaps
    ]
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
