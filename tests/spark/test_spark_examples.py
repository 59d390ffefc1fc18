"""The examples on Spark, as they stand, against one real node; all of them on the Spark of this folder.

An example makes a session and stops it. Here the session is there already, and stays: so they run in the
tests' own process, in which a second session is the first one.
"""

import asyncio
import json
import re
import runpy
from collections.abc import Callable, Iterator

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.archives import count_of
from tests.test_examples import PRINTED_ON_SPARK, Examples, example

import moorline
from moorline.cli.main import run as run_command

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

LARGE, SMALL = 5, 10


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    # The example of an archive proves what is sealed: within a second, and not within an hour.
    with Examples(tmp_path_factory.mktemp("examples"), "--set=streams.generation_s=1") as made:
        yield made


@pytest.fixture(scope="module")
def orders(examples: Examples) -> None:
    """What the flows read."""

    async def publish() -> None:
        bodies = [b"x" * 2_000] * LARGE + [b"x"] * SMALL
        async with moorline.connect(examples.address) as moor:
            await moor.publish_all([moorline.record("orders/eu", body) for body in bodies])

    asyncio.run(publish())


@pytest.fixture
def play(
    examples: Examples,
    spark: SparkSession,  # noqa: ARG001  # it is there before the examples ask for one
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[Callable[[], object]], str]:
    """Runs something in the folder of the examples; what it printed."""

    def played(run: Callable[[], object]) -> str:
        monkeypatch.chdir(examples.folder)
        monkeypatch.setattr(SparkSession, "stop", lambda _: None)
        run()
        return capsys.readouterr().out

    return played


@pytest.mark.parametrize("name", PRINTED_ON_SPARK)
def test_an_example_prints_what_it_should(
    examples: Examples, play: Callable[[Callable[[], object]], str], name: str
) -> None:
    file = examples.folder / f"{name}.py"
    file.write_text(examples.addressed(example(name)))
    printed = play(lambda: runpy.run_path(str(file), run_name="__main__"))
    assert re.fullmatch(PRINTED_ON_SPARK[name], printed), printed


@pytest.mark.usefixtures("orders")
def test_the_flows_run_and_the_copy_is_proven(
    examples: Examples, play: Callable[[Callable[[], object]], str]
) -> None:
    file = examples.folder / "spark_flows.py"
    # Java's own folder is where the tests were started: there a path must be a whole one.
    days = examples.folder / "orders-by-day"
    file.write_text(example("spark_flows").replace("orders-by-day", str(days)))
    command = ["pipeline", "run", str(file), "--address", examples.address, "--json"]
    found = {one["name"]: one for one in json.loads(play(lambda: run_command(command)))}
    total = LARGE + SMALL
    assert list(found) == ["copy", "large", "by_day"]
    assert all(one["messages"] == total for one in found.values())
    assert (found["copy"]["verified"], found["copy"]["sink_count"]) == (True, total)
    assert asyncio.run(count_of(examples.address, "copy/orders/eu")) == total
    assert asyncio.run(count_of(examples.address, "large-orders")) == LARGE
    assert pq.read_table(days).num_rows == total
