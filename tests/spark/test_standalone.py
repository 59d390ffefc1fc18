"""A standalone cluster from the pip package, a master and two workers: reads, writes, archives, verifies."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.spark.archives import filled, messages_of, told_by
from tests.spark.far_driver import COPIES
from tests.spark.publishing import COUNT
from tests.spark.servers import SparkServer, drive, master, worker

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

__all__ = ["filled"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[SparkServer]]]:
    """The address of the master, and both workers."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        master(folder / "master") as head,
        worker(folder / "one", head.found) as one,
        worker(folder / "two", head.found) as two,
    ):
        yield head.found, [one, two]


@pytest.mark.long
def test_a_cluster_reads_writes_archives_and_verifies(
    cluster: tuple[str, list[SparkServer]], filled: NodeProcess, tmp_path: Path
) -> None:
    address, workers = cluster
    sealed = len(told_by(filled).seals)
    steps = ("read", f"path={filled.data}", "archive", "write")
    found = drive(address, filled.address, tmp_path, *steps)

    assert found["read"] == {"rows": COUNT, "is_equal": True}
    assert found["path"] == {"rows": COUNT}
    archived = found["archive"]
    assert archived["messages"] == COUNT
    assert archived["seals"] == archived["streams"] == sealed
    assert archived["is_equal"]
    assert archived["broken"] == [1, 1]
    assert archived["fetched"] > 0
    assert archived["repaired"]

    written = asyncio.run(messages_of(filled.address, "far/#", COPIES))
    assert sorted(int(one.value) for one in written) == list(range(COPIES))
    by_key = defaultdict(list)
    for one in written:
        by_key[one.topic, one.key].append(one.value)
    # Rows of one key were sorted as texts, and keep that order.
    assert all(values == sorted(values) for values in by_key.values())
    assert len(by_key) == 15

    for some in workers:
        logs = [log.read_text() for log in (some.folder / "work").glob("app-*/*/stderr")]
        assert any("Finished task" in log for log in logs), f"{some.folder.name} had nothing to do"
