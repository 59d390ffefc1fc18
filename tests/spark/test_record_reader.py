"""Rows of a registered table through Spark, against a real Postgres and a real node."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.records.site import Site, opened_site

from moorline.catalog import EmbeddedPostgres
from moorline.errors import ConfigError
from moorline.spark.record_reader import record_options

MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 25000) n"


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(MANY, "delete from things where id = 7")
        yield site


async def test_rows_of_a_table_are_read_by_filter_and_columns(
    site: Site, spark: SparkSession
) -> None:
    node = await site.node()
    reads = spark.read.format("moorline").options(address=str(node.addresses[0]), records="things")
    found = await asyncio.to_thread(lambda: reads.load().collect())
    assert {json.loads(one.key)[0] for one in found} == {str(n) for n in range(1, 25_001) if n != 7}
    assert len(found) == 24_999
    some = reads.options(where='{"workspace_id": 1}', columns="state")
    kept = await asyncio.to_thread(lambda: some.load().collect())
    assert len(kept) == 8_333, "ids 1, 4, 7, … without the one that is gone"
    assert all(json.loads(one.row).keys() == {"id", "state"} for one in kept)
    gone = spark.read.format("moorline").options(address=str(node.addresses[0]), records="nothing")
    with pytest.raises(Exception, match="nothing"):
        await asyncio.to_thread(lambda: gone.load().collect())


@pytest.mark.parametrize("where", ["", "[]", "{", '"a"'])
def test_a_filter_that_is_none_is_refused_by_name(where: str) -> None:
    with pytest.raises(ConfigError, match="where"):
        record_options({"records": "things", "where": where})


def test_an_option_of_another_read_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="minPartitions"):
        record_options({"records": "things", "minPartitions": "4"})


class Folded:
    """What whoever takes the rows of batches in their order holds."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], tuple[int, Any]] = {}
        self.kinds: Counter[str] = Counter()

    def take(self, frame: DataFrame, number: int) -> None:
        del number
        rows = frame.collect()
        # Of one batch they come in their order: it has one task.
        for one in rows:
            self.kinds[one.kind] += 1
            if one.kind == "snapshot":
                self.rows.clear()
            elif one.kind == "deletion":
                self.rows.pop(tuple(json.loads(one.key)), None)
            else:
                self.rows[tuple(json.loads(one.key))] = (one.seq, json.loads(one.row))


async def test_changes_of_a_table_are_a_stream_that_goes_on_behind_its_end(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    node = await site.node()
    folded = Folded()

    def stream() -> StreamingQuery:
        return (
            spark.readStream.format("moorline")
            .options(address=str(node.addresses[0]), records="things", includeKind="true")
            .load()
            .writeStream.foreachBatch(folded.take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )

    async def caught_up(query: StreamingQuery) -> None:
        async with asyncio.timeout(120):
            while folded.rows != await site.table():
                assert query.isActive, query.exception()
                await asyncio.sleep(0.1)

    query = await asyncio.to_thread(stream)
    try:
        await caught_up(query)
        assert (folded.kinds["snapshot"], folded.kinds["record"]) == (1, 24_999)
        await site.execute(
            "update things set state = 'DONE' where id = 1",
            "delete from things where id = 2",
            "update things set id = 30000 where id = 3",
        )
        await caught_up(query)
    finally:
        await asyncio.to_thread(query.stop)
    await site.execute(
        "delete from things where id between 10 and 19", "insert into things values (0)"
    )
    query = await asyncio.to_thread(stream)
    try:
        await caught_up(query)
        assert folded.kinds["snapshot"] == 1, "it went on from its cursor"
        assert folded.kinds["record"] < 25_100
        # Nobody can tell what changed: all rows come anew, and say so.
        await site.execute("truncate things", "insert into things values (1, 1, 'NEW', 'again')")
        await caught_up(query)
        assert folded.kinds["snapshot"] >= 2
    finally:
        await asyncio.to_thread(query.stop)
