"""`moor pipeline archive --continuously` as an operator runs it: stopped by a signal, and started again."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import MOOR, NodeProcess, clean_environment
from tests.spark.archives import filled, messages_in, verified
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.publishing import COUNT, message, publish
from tests.waiting import eventually

from moorline.spark.jobs.archive_files import Archive

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

__all__ = ["filled"]

WAIT_S_MAX = 200


@contextmanager
def archiving(node: NodeProcess, where: Path) -> Iterator["subprocess.Popen[str]"]:
    flags = ("--continuously", "--every=1 second", "--json", f"--address={node.address}")
    process = subprocess.Popen(
        [*MOOR, "pipeline", "archive", str(where), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def reach(process: "subprocess.Popen[str]", where: Path, count: int) -> None:
    """Waits until so many messages are in the archive."""

    def is_there() -> bool:
        assert process.poll() is None, process.communicate()
        return sum(file.rows for file in Archive(str(where)).live()) >= count

    eventually(is_there, within_s=WAIT_S_MAX)


def ended(process: "subprocess.Popen[str]", number: signal.Signals) -> dict[str, int]:
    """What it says when all processes of it are told to end: one JSON value, and nothing else.

    So do a terminal, a service manager and `timeout`; Java must outlive it until the query has ended.
    """
    os.killpg(process.pid, number)
    out, errors = process.communicate(timeout=WAIT_S_MAX)
    assert (process.returncode, errors) == (0, "")
    facts: dict[str, int] = json.loads(out)
    return facts


@pytest.mark.long
def test_it_takes_what_comes_ends_when_told_to_and_goes_on_where_it_was(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    with archiving(filled, where) as process:
        reach(process, where, COUNT)
        asyncio.run(publish(filled.address, 100, COUNT))
        reach(process, where, COUNT + 100)
        facts = ended(process, signal.SIGTERM)
    assert facts["messages"] == COUNT + 100
    assert facts["batches"] >= 2

    asyncio.run(publish(filled.address, 50, COUNT + 100))
    with archiving(filled, where) as process:
        reach(process, where, COUNT + 150)
        facts = ended(process, signal.SIGINT)
    assert facts["messages"] == 50
    assert messages_in(spark, where) == [message(number) for number in range(COUNT + 150)]
    report = verified(spark, filled, where)
    assert report.is_equal
    assert report.messages + report.unsealed == COUNT + 150


WAITING = r"moor: .*: waiting for the node, up to \d+ seconds\n"
AGAIN = r"moor: the node answers again: going on\n"


@pytest.mark.long
def test_it_survives_a_node_that_is_killed_and_ends_when_told_to_while_it_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    where, data = tmp_path / "archive", tmp_path / "data"
    with NodeProcess(data, *SMALL_GENERATIONS) as node:
        asyncio.run(publish(node.address, 300))
        with archiving(node, where) as process:
            reach(process, where, 300)
            node.kill()
            assert re.fullmatch(WAITING, said(process))
            # At the same address: what was told to Spark when it began still holds.
            with NodeProcess(data, *SMALL_GENERATIONS, f"--listen={node.address}") as again:
                assert re.fullmatch(AGAIN, said(process))
                asyncio.run(publish(node.address, 100, 300))
                reach(process, where, 400)
                again.stop()
                assert re.fullmatch(WAITING, said(process))
                facts = ended(process, signal.SIGTERM)
    assert facts["messages"] == 400
    assert messages_in(spark, where) == [message(number) for number in range(400)]


def said(process: "subprocess.Popen[str]") -> str:
    """Its next line on stderr."""
    assert process.stderr is not None
    return process.stderr.readline()
