"""`materialize`: a table in Parquet out of its topic, against a real Postgres, node and Spark."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.records.replayed import TOPIC
from tests.records.site import Site, opened_site
from tests.records.test_publishing_killed import SETTINGS, settled, write
from tests.test_examples import PRINTED_OF_RECORDS, example

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.errors import ConfigError, DriftFound, MessagesGone
from moorline.node.node import Node
from moorline.records.renewal import renew
from moorline.spark.jobs.materialize import Kept, MaterializeOptions, check, materialize
from moorline.spark.jobs.materialized import MaterializedTable, materialized

MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 3000) n"
COUNT = 3_001
"""With the row by which a test knows that all is published."""


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(MANY)
        yield site


async def published(site: Site) -> Node:
    node = await site.node(**SETTINGS)
    async with moorline.connect(str(node.addresses[0])) as moor:
        await moor.publish_table("things", TOPIC)
    await settled(site)
    return node


def options_of(node: Node, where: Path, **others: Any) -> MaterializeOptions:
    given: dict[str, Any] = {"table": "things", "buckets": 4} | others
    return MaterializeOptions(str(where), {"address": str(node.addresses[0])}, TOPIC, **given)


async def kept(spark: SparkSession, options: MaterializeOptions) -> Kept:
    return await asyncio.to_thread(materialize, spark, options)


async def rows_in(spark: SparkSession, where: Path) -> dict[tuple[str, ...], tuple[int, Any]]:
    rows = await asyncio.to_thread(lambda: materialized(spark, str(where)).collect())
    found = {tuple(json.loads(one.key)): (one.seq, json.loads(one.row)) for one in rows}
    assert len(found) == len(rows), "a key is there once"
    return found


async def test_what_is_kept_is_the_table_and_goes_on(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    node, where = await published(site), tmp_path / "kept"
    first = await kept(spark, options_of(node, where))
    assert (first.messages, first.rows, first.is_proven) == (COUNT + 1, COUNT, True)
    assert await rows_in(spark, where) == await site.table()

    await site.execute(
        "update things set state = 'DONE' where id <= 10",
        "delete from things where id = 20",
        "update things set id = 5000 where id = 30",
        "insert into things values (6000, 1, 'NEW', null)",
    )
    await settled(site)
    second = await kept(spark, options_of(node, where))
    assert (second.messages, second.rows, second.is_proven) == (15, COUNT, True)
    assert await rows_in(spark, where) == await site.table()

    third = await kept(spark, options_of(node, where))
    assert (third.messages, third.rounds, third.is_proven) == (0, 0, True)
    assert third.digest == second.digest

    # Another state of the table: the topic begins anew, and so does what is kept.
    await site.execute("truncate things", "insert into things values (1, 1, 'NEW', 'again')")
    await settled(site)
    fourth = await kept(spark, options_of(node, where))
    assert (fourth.rows, fourth.is_proven) == (2, True)
    assert fourth.snapshot > first.snapshot
    await renew(site.connection, "things")
    fifth = await kept(spark, options_of(node, where))
    assert (fifth.rows, fifth.is_proven) == (2, True)
    assert await rows_in(spark, where) == await site.table()


async def test_under_writers_it_is_proven_at_a_moment_that_was(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    node, where = await published(site), tmp_path / "kept"
    writers = [asyncio.create_task(write(site, seed)) for seed in range(2)]
    try:
        for _ in range(3):
            done = await kept(spark, options_of(node, where))
            assert done.rows > 0
    finally:
        for one in writers:
            one.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    await settled(site)
    assert (await kept(spark, options_of(node, where))).is_proven
    assert await rows_in(spark, where) == await site.table()


async def test_what_somebody_changed_is_found(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    node, where = await published(site), tmp_path / "kept"
    await kept(spark, options_of(node, where))
    target = MaterializedTable(str(where))
    state = target.latest()
    assert state is not None
    file = where / state.files[0].path
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    done = await kept(spark, options_of(node, where))
    assert done.is_proven is False
    assert len(done.damaged) == 1
    with pytest.raises(DriftFound, match="rebuild"):
        check(done)
    done = await kept(spark, options_of(node, where, rebuild=True))
    check(done)
    assert await rows_in(spark, where) == await site.table()

    # A row that the table has lost behind the back of its triggers is no row of the topic either.
    await site.execute(
        "alter table things disable trigger zzz_moorline_log_delete",
        "delete from things where id = 7",
        "alter table things enable always trigger zzz_moorline_log_delete",
    )
    done = await kept(spark, options_of(node, where, proof_ms=300))
    assert (done.is_proven, done.rows, done.table_rows) == (False, COUNT, COUNT - 1)
    with pytest.raises(DriftFound, match="digests differ"):
        check(done)


async def test_what_cannot_be_kept_is_refused_by_name(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    node, where = await published(site), tmp_path / "kept"
    with pytest.raises(Exception, match="no such table"):
        await kept(spark, options_of(node, where, table="nothing"))
    assert not list(where.rglob("*.json")), "nothing was made"
    strange = MaterializeOptions(str(where), {"address": str(node.addresses[0])}, "other/topic")
    with pytest.raises(MessagesGone, match="no beginning of a table"):
        await kept(spark, strange)
    await kept(spark, options_of(node, where))
    with pytest.raises(ConfigError, match="give another folder"):
        await kept(spark, strange)
    with pytest.raises(ConfigError, match="4 buckets, not 8"):
        await kept(spark, options_of(node, where, buckets=8))
    with contextlib.suppress(FileNotFoundError):
        (where / "_moorline" / "states" / "0000000001.json").write_text("{}")
    with pytest.raises(DriftFound, match="not as it was written"):
        await kept(spark, options_of(node, where))


async def test_the_example_keeps_a_table(
    site: Site,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del spark  # it is there before the example asks for one, and stays
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    await site.execute(
        "create table experiments (id bigint primary key, workspace_id integer, state text)",
        "insert into experiments values (1, 1, 'NEW'), (2, 1, 'NEW'), (3, 2, 'DONE')",
    )
    await site.register("experiments", owner=None, filters=())
    node = await site.node(**SETTINGS)
    address = str(node.addresses[0])
    async with moorline.connect(address) as moor:
        await moor.publish_table("experiments", "tables/experiments")
        async with asyncio.timeout(60):
            while sum(count for _, count in await moor.topics("tables/experiments")) < 4:
                await asyncio.sleep(0.05)
    program = example("spark_table").replace("tcp://127.0.0.1:7411", address)
    await asyncio.to_thread(exec, compile(program, "spark_table.py", "exec"), {})
    assert re.fullmatch(PRINTED_OF_RECORDS["spark_table"], capsys.readouterr().out)
