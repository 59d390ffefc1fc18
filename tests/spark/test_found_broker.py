"""The option `address` as a list of resolvers: for reads and writes, and found where options are read."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType
from tests.process.nodes import NodeProcess
from tests.resolver.processes import resolver_node

import moorline
from moorline.client.resolver import Resolver
from moorline.errors import ConfigError, Unreachable
from moorline.ids import id_of, text_of
from moorline.spark.node_link import address_of
from moorline.spark.options import reading_endpoint_of
from moorline.spark.writer import stream_writer, writer

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


SCHEMA = StructType().add("topic", StringType()).add("value", StringType())


def test_a_write_goes_to_a_broker_that_resolvers_know(
    node: NodeProcess, spark: SparkSession
) -> None:
    rows = spark.createDataFrame([("written", str(number)) for number in range(10)], SCHEMA)
    to = rows.write.format("moorline").option("address", resolvers(node)).mode("append")
    to.save()
    # Under a name it may be repeated: then the node that remembers it is named, whatever its address is.
    named = to.option("query", "again").option("node", home_of(node))
    named.save()
    named.save()
    reader = spark.read.format("moorline").option("topics", "written")
    assert reader.option("address", resolvers(node)).load().count() == 20


def test_a_stream_is_written_by_resolvers_and_a_batch_of_it_once(
    node: NodeProcess, spark: SparkSession, tmp_path: Path
) -> None:
    def run() -> None:
        rows = spark.readStream.schema(SCHEMA).json(str(tmp_path / "rows"))
        query = (
            rows.writeStream.format("moorline")
            .option("address", resolvers(node))
            .option("node", home_of(node))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None

    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.json").write_text('{"topic": "streamed", "value": "1"}\n')
    run()
    # As if the driver had died between the commit of the node and that of Spark.
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    run()
    reader = spark.read.format("moorline").option("topics", "streamed")
    assert reader.option("address", resolvers(node)).load().count() == 1


def test_which_node_commits_the_batches_of_a_query_is_never_guessed(node: NodeProcess) -> None:
    given = {"address": resolvers(node)}
    with pytest.raises(ConfigError, match="remembered by one node"):
        stream_writer(given, SCHEMA, False)
    with pytest.raises(ConfigError, match="remembered by one node"):
        writer({**given, "query": "q"}, SCHEMA, False)
    with pytest.raises(Unreachable, match=rf"'other'; known: {home_of(node)}"):
        stream_writer({**given, "node": "other"}, SCHEMA, False)
    with pytest.raises(ConfigError, match="names resolvers"):
        writer({"address": node.address, "node": "x"}, SCHEMA, False)
    with pytest.raises(ConfigError, match="not here"):
        address_of(resolvers(node))


def test_a_write_to_a_queue_finds_its_home(node: NodeProcess) -> None:
    async def made() -> str:
        async with moorline.connect(node.address) as moor:
            return str(await moor.create_queue())

    queue = asyncio.run(made())
    values = StructType().add("value", StringType())
    stream_writer({"address": resolvers(node), "queue": queue}, values, False)
    elsewhere = text_of(id_of(queue)[:-4] + b"none")
    with pytest.raises(Unreachable, match="the home 6e6f6e65"):
        stream_writer({"address": resolvers(node), "queue": elsewhere}, values, False)


def home_of(node: NodeProcess) -> str:
    async def told() -> str:
        async with Resolver(resolvers(node)) as resolver:
            (path,) = await resolver.match("/nodes/*")
            found = await resolver.resolve(path)
            return found.publishers[0].principal.removeprefix("$node/")

    return asyncio.run(told())


def test_nobody_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.core.directory.read_batch.READ_PAUSE_MS_MIN", 1)
    monkeypatch.setattr("moorline.core.directory.read_batch.READ_PAUSE_MS_MAX", 2)
    with pytest.raises(Unreachable, match="no resolver of"):
        reading_endpoint_of({"address": "moor://127.0.0.1:1"})
