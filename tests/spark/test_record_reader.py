"""Rows of a registered table through Spark, against a real Postgres and a real node."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
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
