"""Live values as a stream of Spark: first values, updates, paths that come later, and a restart."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.process.nodes import NodeProcess
from tests.spark.live_values import LiveValues
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def root() -> str:
    """A subtree of its own for each test: they share a node."""
    return f"/stream-{secrets.token_hex(4)}"


@pytest.fixture
def live(node: NodeProcess) -> Iterator[LiveValues]:
    with LiveValues(node.address) as made:
        yield made


@contextmanager
def running(
    spark: SparkSession, node: NodeProcess, glob: str, checkpoint: Path, rows: list[Row]
) -> Iterator[StreamingQuery]:
    """A query that puts what it reads into a list."""

    def take(frame: DataFrame, _: int) -> None:
        rows.extend(frame.collect())

    frame = (
        spark.readStream.format("moorline")
        .option("address", f"moor://127.0.0.1:1,{node.address.removeprefix('tcp://')}")
        .option("values", glob)
        .option("valueType", "long")
        .option("includeFirst", "true")
        .load()
    )
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(take)
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        yield query
    finally:
        query.stop()


def heard(rows: list[Row], *wanted: tuple[str, int, bool]) -> Callable[[], bool]:
    return lambda: set(wanted) <= {(row.path, row.value, row.is_first) for row in rows}


def counted(query: StreamingQuery) -> int:
    """How many rows its last progress has got to."""
    if query.lastProgress is None:
        return 0
    (source,) = query.lastProgress["sources"]
    return int(json.loads(source["endOffset"])["n"])


def test_a_query_hears_first_values_updates_and_paths_that_come_later(
    spark: SparkSession, node: NodeProcess, live: LiveValues, root: str, tmp_path: Path
) -> None:
    a, b = f"{root}/a", f"{root}/b"
    live.publish({a: 1})
    rows: list[Row] = []
    with running(spark, node, f"{root}/**", tmp_path / "checkpoint", rows):
        eventually(heard(rows, (a, 1, True)), within_s=60)
        for number in (2, 3, 4):
            live.update({a: number})
        live.publish({b: 10})
        eventually(heard(rows, (a, 4, False), (b, 10, True)), within_s=60)
    of_a = [row.value for row in rows if row.path == a]
    assert of_a == sorted(of_a), "never an old value behind a new one"
    assert {row.publisher for row in rows} == {live.publisher.instance.hex()}

    # While it is stopped updates pass by; it begins again with what there is now.
    live.update({a: 5})
    live.update({a: 6})
    again: list[Row] = []
    with running(spark, node, f"{root}/**", tmp_path / "checkpoint", again) as query:
        eventually(heard(again, (a, 6, True), (b, 10, True)), within_s=60)
        # It counts on. A batch is heard before its progress is told, and the last one may come again first.
        eventually(lambda: counted(query) > len(rows), within_s=60)
        assert query.lastProgress is not None
        (source,) = query.lastProgress["sources"]
        told = json.loads(source["latestOffset"])
        assert (told["paths"], told["silent"], told["conflated"]) == (2, 0, 0)
    assert 5 not in [row.value for row in again]


def test_options_of_a_snapshot_are_refused_by_name(spark: SparkSession, node: NodeProcess) -> None:
    options = {"values": "/a/*", "address": node.address, "minPartitions": "3"}
    with pytest.raises(PySparkException, match="minPartitions: it is for a snapshot"):
        spark.readStream.format("moorline").options(**options).load().writeStream.format(
            "noop"
        ).start().processAllAvailable()
