"""Tombstones on their way through an archive: null in its files, proven by digests, and replayed as such."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import archive_of, source_of, until_sealed, verified
from tests.spark.conftest import SMALL_GENERATIONS

import moorline
from moorline.spark.jobs.archive_files import archived
from moorline.spark.jobs.replay import ReplayOptions, replay

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

COUNT = 30
BODY = b"x" * 10_000


def body_of(number: int) -> bytes | None:
    """None, empty, or enough that generations end."""
    return (None, b"", BODY)[number % 3]


async def publish(node: NodeProcess) -> None:
    async with moorline.connect(node.address) as moor:
        for number in range(COUNT):
            await moor.publish("graves/a", body_of(number), key=b"%d" % number)


async def replayed(node: NodeProcess) -> dict[bytes | None, bytes | None]:
    found: dict[bytes | None, bytes | None] = {}
    async with moorline.connect(node.address) as moor:
        subscription = await moor.subscribe("again/#", start="beginning")
        async with asyncio.timeout(60):
            async for one in subscription:
                found[one.key] = None if one.is_tombstone else one.body
                await one.ack()
                if len(found) == COUNT:
                    return found
    raise AssertionError("the subscription ended")


def test_a_tombstone_is_archived_proven_and_replayed_as_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    expected = {b"%d" % number: body_of(number) for number in range(COUNT)}
    with NodeProcess(tmp_path / "data", *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node))
        until_sealed(node)
        assert archive_of(spark, node, where).messages == COUNT
        rows = archived(spark, str(where)).select("key", "value").collect()
        kept = {bytes(key): None if value is None else bytes(value) for key, value in rows}
        assert kept == expected
        report = verified(spark, node, where)
        assert report.is_equal
        assert {one.proof for one in report.streams} == {"seal"}
        replay(spark, ReplayOptions(str(where), source_of(node), prefix="again/"))
        assert asyncio.run(replayed(node)) == expected
