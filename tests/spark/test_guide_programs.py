"""The programs of docs/spark.md, as they stand there, in one session and on one node.

Those of the jobs are run with the commands of that page (`tests/pages/test_how_to_spark.py`), the pipeline by
`test_declarative.py`.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.conftest import SMALL_GENERATIONS
from tests.spark.live_values import LiveValues

import moorline.spark
import moorline.sync

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCKS = [block for _, block in re.findall(r"^```(python|sql)\n(.*?)^```", PAGE, re.M | re.S)]
WITHIN_S = 60
HAD_A_BATCH = """
query.processAllAvailable()
wait_for(lambda: lag.of(query) is not None)
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One of its own: others count all that is at the node that they share."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "data", *SMALL_GENERATIONS) as one:
        yield one


def wait_for(condition: Any) -> None:
    ends = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


class Guide:
    """Its programs share their names, as on the page."""

    def __init__(self, spark: SparkSession, node: NodeProcess, folder: Path) -> None:
        self.spark = spark
        self._node, self._folder = node, folder
        self.names: dict[str, Any] = {"spark": spark, "moorline": moorline, "wait_for": wait_for}

    def found(self, text: str) -> str:
        """The program with this in it, with the addresses and folders of the test."""
        (block,) = [one for one in BLOCKS if text in one]
        block = block.replace("tcp://127.0.0.1:7411", self._node.address)
        block = block.replace("moor://127.0.0.1:7411", self._node.address.replace("tcp", "moor"))
        if "address" not in block:
            at = f'.option("address", "{self._node.address}")'
            block = block.replace('.format("moorline")', f'.format("moorline"){at}')
        return re.sub(r'"(billing(-state)?)"', lambda one: f'"{self._folder / one[1]}"', block)

    def run(self, text: str) -> dict[str, Any]:
        exec(self.found(text), self.names)
        return self.names

    def count(self, topic: str) -> int:
        read = self.spark.read.format("moorline").option("address", self._node.address)
        return read.option("topics", topic).load().count()


@pytest.fixture
def guide(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> Guide:
    with moorline.sync.connect(node.address, reconnect=False) as moor:
        for body in (b"one", b"two", b"three"):
            moor.publish("orders/eu", body)
    return Guide(spark, node, tmp_path)


def test_reading_and_writing(guide: Guide) -> None:
    assert guide.run("# this machine, all cores")["spark"] is not None
    guide.run("# before the session")
    assert guide.run('.option("topics", "orders/#")\n    .load()\n)\n')["orders"].count() >= 3
    guide.run("prices = spark.createDataFrame")
    assert [guide.count(topic) for topic in ("prices/tea", "prices/rice")] == [1, 1]


@pytest.mark.parametrize("page", ["spark.md", "records.md"])
def test_what_is_selected_of_rows_of_tables(page: str, spark: SparkSession) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    selected = re.findall(r"^(?:named = rows|rows|named)\.select.*$", text, re.M)
    table = [("17", 3, '{"state": "NEW", "size": 7}')]
    names: dict[str, Any] = {
        "rows": spark.createDataFrame(table, "key string, seq int, row string")
    }
    for number, line in enumerate(selected):
        exec(f"found_{number} = {line.removeprefix('named = ')}", names)
        names["named"] = names[f"found_{number}"]
    assert selected
    assert names["named"].collect()[0]["state"] == "NEW"


def test_sql(guide: Guide) -> None:
    statements = [one for one in guide.found("CREATE TEMPORARY VIEW").split(";") if one.strip()]
    try:
        results = [guide.spark.sql(one).collect() for one in statements]
    finally:
        for view in ("orders", "alerts"):
            guide.spark.catalog.dropTempView(view)
    assert "orders/eu" in [row["topic"] for row in results[1]]
    assert guide.count("alerts/stock") == 1


def test_a_query_as_a_member_and_its_lag(guide: Guide, node: NodeProcess) -> None:
    with moorline.sync.connect(node.address, reconnect=False) as moor:
        group = "$shared/billing/orders/#"
        moor.run(lambda one: one.group(group).create(start="beginning"))
    program = guide.found("lag = moorline.spark.watch_lag")
    begins = "# … a query is started and has had a batch"
    assert begins in program
    member = guide.found('.option("group", "$shared/billing/orders/#")')
    names = guide.names
    try:
        exec(program.replace(begins, member + HAD_A_BATCH), names)
        names["query"].processAllAvailable()
        guide.run("progress = query.lastProgress")
        assert names["progress"] is not None
    finally:
        if "query" in names:
            names["query"].stop()
        if "lag" in names:
            guide.spark.streams.removeListener(names["lag"])


def test_values(guide: Guide, node: NodeProcess) -> None:
    with LiveValues(node.address) as live:
        live.publish({"/oslo/fjord/temperature": 4.5})
        rows = guide.run('.option("values", "/oslo/*/temperature")')["now"].collect()
        assert [(row["path"], row["value"]) for row in rows] == [("/oslo/fjord/temperature", 4.5)]
        updates = guide.run('.option("values", "/oslo/**")')["updates"]
        query = updates.writeStream.format("memory").queryName("updates_of_oslo").start()
        try:
            wait_for(lambda: guide.spark.table("updates_of_oslo").count() > 0)
        finally:
            query.stop()
    guide.run("moorline.spark.ValuePublisher(")
