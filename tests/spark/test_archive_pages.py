"""A query of one topic of an archive reads the pages that have it, and not the archive."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from moorline.core.stream import Stream
from moorline.limits import ARCHIVE_ROW_GROUP_ROWS
from moorline.spark.jobs.archive_files import Archive, folder_of
from moorline.spark.jobs.parquet import SCHEMA, part_writer

COUNT = ARCHIVE_ROW_GROUP_ROWS + 10_000
TOPICS = 100


def rows(first: int, upto: int) -> pa.RecordBatch:
    """A hundred topics that take turns."""
    offsets = np.arange(first, upto)
    columns = {
        "offset": pa.array(offsets),
        "timestamp": pa.array(offsets, pa.timestamp("us", "UTC")),
        "topic": pa.array([f"t/{offset % TOPICS:02}" for offset in offsets.tolist()]),
        "value": pa.array([b"%0100d" % offset for offset in offsets.tolist()], pa.binary()),
    }
    zeros = np.zeros(upto - first, np.int64)
    filled = [
        columns.get(
            field.name,
            pa.array(zeros if pa.types.is_integer(field.type) else [None] * len(zeros), field.type),
        )
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(filled, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("archive")
    archive = Archive(str(where))
    with part_writer(archive, folder_of("b", Stream("n", 0, 1)), is_proven=True) as writer:
        for first in range(0, COUNT, 50_000):
            writer.write(rows(first, min(first + 50_000, COUNT)))
    (file,) = writer.files
    assert (file.rows, file.first, file.last) == (COUNT, 0, COUNT - 1)
    return where / file.path


def test_topics_lie_side_by_side_in_their_order_and_pages_have_an_index(path: Path) -> None:
    opened = pq.ParquetFile(path)
    seen = set[int]()
    for number in range(opened.metadata.num_row_groups):
        column = opened.metadata.row_group(number).column(SCHEMA.names.index("topic"))
        assert column.has_column_index
        assert column.has_offset_index
        found = opened.read_row_group(number, ["offset", "topic"]).to_pylist()
        ordered = [(row["topic"], row["offset"]) for row in found]
        assert ordered == sorted(ordered)
        offsets = {row["offset"] for row in found}
        # Jobs choose row groups by offsets: each has those of one range.
        assert offsets == set(range(min(offsets), min(offsets) + len(found)))
        seen |= offsets
    assert seen == set(range(COUNT))


@pytest.mark.process
@pytest.mark.slow
def test_of_other_topics_little_is_read(spark: SparkSession, path: Path) -> None:
    frame = spark.read.parquet(str(path)).where("topic = 't/07'").select("offset", "value")
    assert sorted(row.offset for row in frame.collect()) == list(range(7, COUNT, TOPICS))
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scanned = leaves.apply(0).metrics().apply("numOutputRows").value()
    assert COUNT // TOPICS <= scanned < COUNT // 10
