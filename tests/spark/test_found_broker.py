"""The option `address` as a list of resolvers: for reads, and found where options are read."""

import asyncio
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.resolver.processes import resolver_node

import moorline
from moorline.errors import ConfigError, Unreachable
from moorline.spark.node_link import address_of
from moorline.spark.options import reading_endpoint_of

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with resolver_node(tmp_path_factory.mktemp("found")) as one:
        yield one


def resolvers(node: NodeProcess) -> str:
    return f"moor://{node.address.removeprefix('tcp://')}"


def test_a_broker_is_found_and_always_the_same(node: NodeProcess) -> None:
    for _ in range(2):
        assert reading_endpoint_of({"address": resolvers(node)}).address == node.address
    assert reading_endpoint_of({"address": node.address}).address == node.address


def test_a_topic_is_read_by_resolvers_alone(node: NodeProcess, spark: SparkSession) -> None:
    async def publish() -> None:
        async with moorline.connect(resolvers(node)) as moor:
            for number in range(10):
                await moor.publish("orders", b"%d" % number)

    asyncio.run(publish())
    reader = spark.read.format("moorline").option("topics", "orders")
    rows = reader.option("address", resolvers(node)).load().collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(10))


def test_a_write_names_its_node(node: NodeProcess) -> None:
    with pytest.raises(ConfigError, match="a write names its node"):
        address_of(resolvers(node))


def test_nobody_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.core.directory.read_batch.READ_PAUSE_MS_MIN", 1)
    monkeypatch.setattr("moorline.core.directory.read_batch.READ_PAUSE_MS_MAX", 2)
    with pytest.raises(Unreachable, match="no resolver of"):
        reading_endpoint_of({"address": "moor://127.0.0.1:1"})
