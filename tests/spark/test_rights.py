"""Queries of Spark as a principal with rights: the audit trail as a table, and a right that is taken away."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
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
from moorline.client.moor import Moor

pytestmark = [pytest.mark.process, pytest.mark.slow]

NAME = "auditor"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Of its own: what is refused here is in its streams too, as lines of the trail."""
    with NodeProcess(tmp_path_factory.mktemp("rights") / "data", *SMALL_GENERATIONS) as one:
        yield one


@pytest.fixture
def token(node: NodeProcess, tmp_path: Path) -> Path:
    """Of a user who may read all topics: what Spark reads as it is stored needs that."""

    made: list[str] = []

    async def make(moor: Moor) -> None:
        await moor.access.add_grant("/topics", NAME, "sl")
        if all(user.name != NAME for user in await moor.access.users()):
            await moor.access.add_user(NAME)
        made.append((await moor.access.add_token(NAME, tmp_path.name)).token)

    done(node, make)
    return secret_file(tmp_path / "token", made[0])


def done(node: NodeProcess, work: Callable[[Moor], Awaitable[object]]) -> None:
    """By the operator of this machine."""

    async def run() -> None:
        async with moorline.connect(node.address) as moor:
            await work(moor)

    asyncio.run(run())


def trail(spark: SparkSession, node: NodeProcess, token: Path) -> DataFrame:
    options = {"topics": "$SYS/audit/#", "address": node.address, "tokenFile": str(token)}
    return spark.read.format("moorline").options(**options).load()


def test_spark_reads_the_trail_if_it_may(
    spark: SparkSession, node: NodeProcess, token: Path
) -> None:
    """A41: every line that is in the files so far is a row, and without a right there is none."""
    lines = [line for line in audited(node) if line["kind"] == "grant"]
    rows = trail(spark, node, token).select("topic", "value").collect()
    read = [json.loads(row.value) for row in rows if row.topic == "$SYS/audit/grant"]
    assert lines
    assert [line for line in lines if line not in read] == []
    done(node, lambda moor: moor.access.remove_grant("/topics", NAME))
    with pytest.raises(PySparkException, match="is not granted at /topics"):
        trail(spark, node, token).collect()


def test_a_query_whose_right_is_taken_away_ends(
    spark: SparkSession, node: NodeProcess, token: Path, tmp_path: Path
) -> None:
    """A24: with the right that is missing in its error; what is published later is not in its table."""
    out, state = tmp_path / "out", tmp_path / "state"
    options = {"topics": "watched", "address": node.address, "tokenFile": str(token)}
    query = (
        spark.readStream.format("moorline")
        .options(**options, startingOffsets="earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(state))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        done(node, lambda moor: moor.publish("watched", b"before"))
        eventually(
            lambda: not query.isActive or any(one.numInputRows for one in query.recentProgress),
            within_s=100,
        )
        assert query.isActive, query.exception()
        done(node, lambda moor: moor.access.remove_grant("/topics", NAME))
        eventually(lambda: not query.isActive, within_s=100)
        assert "is not granted at /topics" in str(query.exception())
        done(node, lambda moor: moor.publish("watched", b"after"))
    finally:
        query.stop()
    assert [row.value for row in spark.read.parquet(str(out)).select("value").collect()] == [
        b"before"
    ]
    refused = {line["act"] for line in audited(node) if line["principal"] == NAME}
    assert refused & {"ReadStream", "ReadStreamFile", "DescribeShards", "DescribeCluster"}
