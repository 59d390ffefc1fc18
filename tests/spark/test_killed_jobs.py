"""Jobs whose driver is killed with SIGKILL at every point that matters: nothing is lost, nothing is twice."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import (
    archive_of,
    count_of,
    filled,
    messages_in,
    messages_of,
    source_of,
    verified,
)
from tests.spark.killed_job import BATCH_MESSAGES, PREFIX, RATE
from tests.spark.publishing import COUNT, message, number_of, publish
from tests.spark.servers import DRIVER_S_MAX, ROOT, environment

from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.replay import ReplayOptions, replay

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

__all__ = ["filled"]


def killed_at(point: str, node: NodeProcess, where: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_job", node.address, str(where), point],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DRIVER_S_MAX,
        check=False,
    )
    # Killed itself, or left without its Java: whatever else ends it is a mistake of this test.
    is_killed = (
        done.returncode == -signal.SIGKILL
        or "Connection refused" in done.stderr
        or ("Error while sending or receiving" in done.stderr or "Py4JNetworkError" in done.stderr)
    )
    assert is_killed, f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.long
def test_an_archive_whose_driver_is_killed_goes_on_and_is_proven(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    killed_at("entered", filled, where)
    # Two batches count. Of the second one Spark has not heard that it is over.
    assert [entry.batch for entry in Archive(str(where)).entries()] == [0, 1]
    archive_of(spark, filled, where)
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]
    assert verified(spark, filled, where).is_equal


@pytest.mark.long
def test_an_archive_whose_driver_is_killed_again_and_again(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    archive = Archive(str(where))

    killed_at("writing", filled, where)
    assert list(where.rglob("*.parquet")), "the task had written its files"
    assert archive.entries() == []
    killed_at("entered", filled, where)
    # Two batches count. Of the second one Spark has not heard that it is over.
    assert [entry.batch for entry in archive.entries()] == [0, 1]
    commits = where / "_moorline" / "checkpoint" / "commits"
    assert not (commits / "1").exists()
    killed_at("merging", filled, where)
    assert all(entry.query for entry in archive.entries()), "no compaction has an entry"
    assert list(where.glob("batch=compacted-*")), "but its files are there"
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]

    asyncio.run(publish(filled.address, 100, COUNT))
    done = archive_of(spark, filled, where)
    assert (done.messages, done.batches) == (100, 1)
    assert done.compacted_files > done.compacted_into > 0
    assert messages_in(spark, where) == [message(number) for number in range(COUNT + 100)]
    # What was sealed when the run began is in one file each.
    sealed = archive.seals()
    streams = [file.stream for file in archive.live() if file.stream in sealed]
    assert len(streams) == len(set(streams)) == len(sealed)
    report = verified(spark, filled, where)
    assert report.is_equal
    assert report.messages + report.unsealed == COUNT + 100
    assert BATCH_MESSAGES < COUNT, "or there would be one batch only"


@pytest.fixture(scope="module")
def orders(
    spark: SparkSession, filled: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An archive that takes several steps to replay, and has no message of any replay."""
    where = tmp_path_factory.mktemp("orders") / "archive"
    archive_of(spark, filled, where, topics="orders/eu/#")
    return where


def test_a_replay_whose_driver_is_killed_publishes_nothing_twice(
    spark: SparkSession, filled: NodeProcess, orders: Path
) -> None:
    kept = [number_of(one) for one in messages_in(spark, orders)]
    assert len(kept) > 3 * RATE, "or the second step would be the last"
    killed_at("replayed", filled, orders)
    published = asyncio.run(count_of(filled.address, f"{PREFIX}#"))
    assert 0 < published < len(kept)
    done = replay(spark, ReplayOptions(str(orders), source_of(filled), prefix=PREFIX))
    assert done.messages_in_all == len(kept)
    # The second step was there, and came once more for nothing.
    assert asyncio.run(count_of(filled.address, f"{PREFIX}#")) == len(kept)
    found = asyncio.run(messages_of(filled.address, f"{PREFIX}#", len(kept)))
    assert sorted(map(number_of, found)) == kept
