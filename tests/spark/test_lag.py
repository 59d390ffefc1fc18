"""How far a query is behind: in its progress, and by the listener."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.publishing import Message
from tests.waiting import eventually

import moorline.spark
from moorline.spark.lag import Lag, lag_in, lag_of


def test_a_lag_is_of_all_shards() -> None:
    lag = lag_of([50, 0, 10, -3])
    assert lag == Lag(0, 15.0, 50, 60, 4)
    assert lag_in(lag.told()) == lag
    assert lag_of([]) == Lag(0, 0.0, 0, 0, 0)


@pytest.mark.parametrize("told", [None, "", "{", "[]", "7", '{"node-1/0": 7}', {"a": 1}])
def test_what_other_sources_say_is_no_lag(told: object) -> None:
    assert lag_in(told) is None


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_listener_is_told_at_every_batch(
    spark: SparkSession, node: NodeProcess, published: list[Message], tmp_path: Path
) -> None:
    heard: list[tuple[str, Lag]] = []
    lag = moorline.spark.watch_lag(spark, lambda query, one: heard.append((query, one)))
    try:
        options = {"topics": "#", "address": node.address, "startingOffsets": "earliest"}
        frame = spark.readStream.format("moorline").options(**options)
        query = (
            frame.option("maxOffsetsPerTrigger", len(published) // 2)
            .load()
            .writeStream.format("noop")
            .queryName("behind")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
        eventually(lambda: bool(heard) and heard[-1][1].messages == 0)
        found = lag.of(query)
    finally:
        spark.streams.removeListener(lag)
    assert {name for name, _ in heard} == {"behind"}
    first = heard[0][1]
    assert 0 < first.least <= first.average <= first.greatest < first.messages
    assert first.average == first.messages / first.shards
    assert found == Lag(0, 0.0, 0, 0, first.shards)
    assert lag.of("nobody") is None
