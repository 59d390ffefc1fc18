"""Rows of Spark as live values: by a publisher in the driver, from a table and from a stream."""

import pickle
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess

import moorline.spark
from moorline.client.values.subscriber import Subscriber
from moorline.errors import BadPath, BadValue, ConfigError, NotFound, Unreachable
from moorline.spark.loop_thread import LoopThread
from moorline.spark.value_publisher import ValuePublisher

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def publisher(node: NodeProcess) -> Iterator[ValuePublisher]:
    address = node.address.replace("tcp://", "moor://")
    with moorline.spark.ValuePublisher(address) as made:
        yield made


@pytest.fixture
def root() -> str:
    return f"/published-{secrets.token_hex(4)}"


def values_of(node: NodeProcess, *paths: str) -> list[Any]:
    """As a subscriber has them that is no part of Spark."""

    async def get() -> list[Any]:
        async with Subscriber(node.address) as subscriber:
            return [(await subscriber.subscribe(path)).value for path in paths]

    thread = LoopThread("a subscriber")
    try:
        return thread.run(get())
    finally:
        thread.close()


def test_rows_are_published_updated_and_unpublished(
    spark: SparkSession, node: NodeProcess, publisher: ValuePublisher, root: str
) -> None:
    a, b = f"{root}/a", f"{root}/b"
    kind = "path string, value struct<n:bigint,at:timestamp,all:array<string>>"
    moment = datetime(2026, 5, 4, 8, 30, tzinfo=UTC)
    frame = spark.createDataFrame([(a, (1, moment, ["x"])), (b, None)], kind)
    assert publisher.publish(frame) == 2
    assert values_of(node, a, b) == [{"n": 1, "at": moment, "all": ["x"]}, None]
    assert publisher.publish(spark.createDataFrame([(a, 2)], "path string, value int")) == 1
    assert values_of(node, a, b) == [2, None]
    publisher.publish(spark.createDataFrame([(a, b"3")], "path string, value binary"), is_all=True)
    assert values_of(node, a) == [b"3"]
    with pytest.raises(NotFound):
        values_of(node, b)
    # What Spark has published, Spark reads.
    read = spark.read.format("moorline").options(address=node.address, values=f"{root}/*")
    assert [(row.path, row.value) for row in read.load().collect()] == [(a, '"Mw=="')]


def test_what_cannot_be_published_is_named_and_changes_nothing(
    spark: SparkSession, node: NodeProcess, publisher: ValuePublisher, root: str
) -> None:
    a = f"{root}/a"
    publisher.publish(spark.createDataFrame([(a, 1)], "path string, value int"))
    for rows, kind, error, text in (
        ([(a, 2), ("b", 2)], "path string, value int", BadPath, "'b'"),
        ([(None, 2), (a, 2)], "path string, value int", BadValue, "a row has no path"),
        ([(a, 2, 3)], "path string, value int, more int", ConfigError, "select path and value"),
        ([(a, {"b": 2})], "path string, value map<string,int>", ConfigError, "value is map<"),
    ):
        with pytest.raises(error, match=text):
            publisher.publish(spark.createDataFrame(rows, kind))
    assert values_of(node, a) == [1]
    with pytest.raises(ConfigError, match="stays in the process that made it"):
        pickle.dumps(publisher)
    frame = spark.createDataFrame([(a, 2)], "path string, value int")
    with pytest.raises(PySparkException, match=r"use\s+moorline.spark.ValuePublisher"):
        frame.write.format("moorline").option("values", root).mode("append").save()
    with pytest.raises(Unreachable, match=r"tcp://127\.0\.0\.1:1"):
        moorline.spark.ValuePublisher("moor://127.0.0.1:1")


def test_a_streaming_query_publishes_its_batches(
    spark: SparkSession, node: NodeProcess, publisher: ValuePublisher, root: str, tmp_path: Path
) -> None:
    counted = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .option("numPartitions", 1)
        .load()
        .selectExpr(f"concat('{root}/', value % 3) AS path", "value")
    )
    query = (
        counted.writeStream.foreachBatch(publisher.publish_batch)
        .option("checkpointLocation", str(tmp_path))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(values_of(node, *(f"{root}/{place}" for place in range(3)))) == [7, 8, 9]
