"""Several nodes: each is asked for its own streams, and one that is away is named."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tests.process.nodes import NodeProcess

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.errors import ConnectionLost
from moorline.spark.options import topic_options
from moorline.spark.topic_reader import TopicStreamReader

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    """Two nodes on one catalog, each with a hundred messages of its own."""
    with asyncio.Runner() as runner:
        postgres = EmbeddedPostgres(tmp_path / "catalog")
        runner.run(postgres.__aenter__())
        try:
            flags = (f"--catalog={postgres.dsn}", "--set=streams.shards=2")
            with (
                NodeProcess(tmp_path / "one", "--node=one", *flags) as one,
                NodeProcess(tmp_path / "two", "--node=two", *flags) as two,
            ):
                for node in (one, two):
                    runner.run(_publish(node))
                yield [one, two]
        finally:
            runner.run(postgres.__aexit__(None, None, None))


async def _publish(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor:
        name = node.data.name
        records = [moorline.record(f"from/{name}", b"%d" % number) for number in range(100)]
        await moor.publish_all(records)


def load(spark: SparkSession, node: NodeProcess, **options: str) -> DataFrame:
    options = {"topics": "from/+", "address": node.address, **options}
    return spark.read.format("moorline").options(**options).load()


def test_all_nodes_are_read_and_one_that_is_away_is_named(
    spark: SparkSession, nodes: list[NodeProcess]
) -> None:
    one, two = nodes
    rows = load(spark, two).collect()
    found = sorted((row.topic, row.stream.split("/")[0], int(bytes(row.value))) for row in rows)
    assert found == [
        (f"from/{name}", name, number) for name in ("one", "two") for number in range(100)
    ]
    given = {"topics": "from/+", "address": two.address, "startingOffsets": "earliest"}
    options = topic_options({**given, "failOnDataLoss": "false"}, is_stream=True)
    stream = TopicStreamReader(options, StructType().add("offset", "long"))
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    one.kill()
    with pytest.raises(ConnectionLost, match=r"messages of one/[01], whose node is away"):
        stream.partitions(start, end)
    assert "lost" not in (stream.reportLatestOffset() or {}), "away is not gone"
    later = stream.latestOffset(end, ReadAllAvailable())
    assert later == end, "what is known of its shards stays"
    stream.stop()
    with pytest.raises(PySparkException, match="the streams of one are not known now"):
        load(spark, two).collect()
    left = load(spark, two, failOnDataLoss="false").collect()
    assert {row.topic for row in left} == {"from/two"}
    assert len(left) == 100
