"""Spark as somebody who may read some topics: it gets these, with their offsets, and hears how to ask."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.client.proving_node import secret_file
from tests.process.nodes import NodeProcess
from tests.process.proving import audited
from tests.spark.conftest import SMALL_GENERATIONS
from tests.waiting import eventually

import moorline

pytestmark = [pytest.mark.process, pytest.mark.slow]

NAME = "analyst"
COUNT = 3_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Of its own: of every three messages the second is shown."""
    with NodeProcess(tmp_path_factory.mktemp("filtered") / "data", *SMALL_GENERATIONS) as one:
        yield one


@pytest.fixture(scope="module")
def token(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: list[str] = []

    async def prepare() -> None:
        async with moorline.connect(node.address) as moor:
            await moor.access.add_user(NAME)
            await moor.access.add_grant("/topics/shown", NAME, "s")
            made.append((await moor.access.add_token(NAME, "nightly")).token)
            topics = [("hidden", "shown/a", "hidden/b")[number % 3] for number in range(COUNT)]
            records = [
                moorline.record(topic, b"%d" % number) for number, topic in enumerate(topics)
            ]
            await moor.publish_all(records)

    asyncio.run(prepare())
    return secret_file(tmp_path_factory.mktemp("secret") / "token", made[0])


def read(
    spark: SparkSession, node: NodeProcess, token: Path | None, topics: str, **more: str
) -> DataFrame:
    proof = {"tokenFile": str(token)} if token else {}
    options = {"topics": topics, "address": node.address, **proof, **more}
    return spark.read.format("moorline").options(**options).load()


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    columns = ("topic", "offset", "partition", "timestamp", "value")
    return sorted(map(tuple, frame.select(*columns).collect()))


def test_it_reads_what_it_may_as_one_who_may_read_everything_does(
    spark: SparkSession, node: NodeProcess, token: Path
) -> None:
    mine = rows(read(spark, node, token, "shown/#", filterAt="node"))
    assert len(mine) == COUNT // 3
    assert mine == rows(read(spark, node, None, "shown/#"))
    assert mine == rows(read(spark, node, None, "shown/#", filterAt="node"))
    later = read(spark, node, token, "shown/#", filterAt="node", startingTimestamp="0")
    assert rows(later) == mine


def test_a_stream_of_it_misses_nothing_and_takes_no_hole_for_a_loss(
    spark: SparkSession, node: NodeProcess, token: Path, tmp_path: Path
) -> None:
    options = {"topics": "shown/#", "address": node.address, "tokenFile": str(token)}
    query = (
        spark.readStream.format("moorline")
        .options(**options, filterAt="node", startingOffsets="earliest", maxOffsetsPerTrigger="700")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert len(query.recentProgress) > 1
    found = spark.read.parquet(str(tmp_path / "out"))
    assert {row.topic for row in found.select("topic").distinct().collect()} == {"shown/a"}
    assert found.count() == COUNT // 3


def test_without_the_option_it_is_told_of_it_and_more_is_denied(
    spark: SparkSession, node: NodeProcess, token: Path
) -> None:
    with pytest.raises(PySparkException, match="set filterAt to node"):
        read(spark, node, token, "shown/#").collect()
    for topics in ("#", "shown/#,hidden"):
        with pytest.raises(PySparkException, match="is not granted at /topics/"):
            read(spark, node, token, topics, filterAt="node").collect()

    def refused() -> set[str]:
        return {line["path"] for line in audited(node) if line["principal"] == NAME}

    eventually(lambda: "/topics/hidden" in refused(), within_s=30)


def test_what_the_option_takes(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="filterAt: 'here'; accepted: reader, node"):
        read(spark, node, None, "shown/#", filterAt="here").collect()
    options = {"topics": "a", "path": str(tmp_path), "filterAt": "node"}
    with pytest.raises(PySparkException, match="a folder has no node that could filter"):
        spark.read.format("moorline").options(**options).load().collect()
