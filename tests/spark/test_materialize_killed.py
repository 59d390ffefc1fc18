"""`materialize` is killed at every step, and goes on; and `moor pipeline materialize` as people run it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import MOOR, clean_environment, run_moor
from tests.records.replayed import TOPIC
from tests.records.site import Site, opened_site
from tests.records.test_publishing_killed import settled
from tests.spark.killed_materialize import POINTS
from tests.spark.servers import DRIVER_S_MAX, ROOT, environment
from tests.spark.test_materialize import COUNT, MANY, kept, options_of, published, rows_in

from moorline.catalog import EmbeddedPostgres
from moorline.node.node import Node
from moorline.spark.jobs.materialized import MaterializedTable

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(MANY)
        yield site


def killed_at(point: str, node: Node, where: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.spark.killed_materialize"),
            *(str(node.addresses[0]), str(where), point),
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DRIVER_S_MAX,
        check=False,
    )
    # Killed itself, or left without its Java: whatever else ends it is a mistake of this test.
    is_killed = done.returncode == -signal.SIGKILL or any(
        text in done.stderr
        for text in ("Connection refused", "Error while sending or receiving", "Py4JNetworkError")
    )
    assert is_killed, f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "points",
    [("merging",), ("committed",), pytest.param(POINTS, marks=pytest.mark.long)],
    ids=["merging", "committed", "all"],
)
async def test_killed_at_each_step_it_goes_on_and_is_proven(
    site: Site, spark: SparkSession, tmp_path: Path, points: tuple[str, ...]
) -> None:
    node, where = await published(site), tmp_path / "kept"
    await kept(spark, options_of(node, where))
    target = MaterializedTable(str(where))
    for number, point in enumerate(points):
        before, held = target.latest(), await rows_in(spark, where)
        await site.execute(
            f"update things set note = '{point}' where id % 10 = {number}",
            f"delete from things where id = {100 + number}",
        )
        await settled(site)
        await asyncio.to_thread(killed_at, point, node, where)
        if point == "committed":
            assert await rows_in(spark, where) == await site.table(), "it had happened"
        else:
            assert target.latest() == before, "nothing has happened"
            assert await rows_in(spark, where) == held, "who reads sees what was there before"
        done = await kept(spark, options_of(node, where))
        assert done.is_proven, point
        assert await rows_in(spark, where) == await site.table()
        assert not list(where.glob("_moorline/stage/*/*")), "nothing is left of what was cut short"


def command_of(node: Node, where: Path) -> tuple[str, ...]:
    return ("things", str(where), f"--address={node.addresses[0]}", f"--topic={TOPIC}", "--json")


async def test_the_command_tells_what_it_kept(site: Site, tmp_path: Path) -> None:
    node, where = await published(site), tmp_path / "kept"
    flags = command_of(node, where)
    done = await asyncio.to_thread(
        run_moor, "pipeline", "materialize", *flags, timeout_s=DRIVER_S_MAX
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["messages"], told["rows"], told["is_proven"]) == (COUNT + 1, COUNT, True)

    refused = await asyncio.to_thread(run_moor, "pipeline", "materialize", *flags, "--topic=a/#")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (12, 1), refused.stderr


async def test_the_command_goes_on_and_ends_when_it_is_told(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    node, where = await published(site), tmp_path / "kept"
    await kept(spark, options_of(node, where))
    await site.execute("delete from things where id <= 100")
    await settled(site)
    going = await asyncio.create_subprocess_exec(
        *(*MOOR, "pipeline", "materialize", *command_of(node, where)),
        *("--continuously", "--every=200 milliseconds"),
        env=clean_environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(300):
        for note in ("one", "two"):
            await site.execute(f"update things set note = '{note}' where id = 200")
            while (await rows_in(spark, where)) != await site.table():
                assert going.returncode is None, await going.communicate()
                await asyncio.sleep(0.2)
        going.terminate()
        out, errors = await going.communicate()
    assert going.returncode == 0, errors
    assert json.loads(out)["rows"] == COUNT - 100
