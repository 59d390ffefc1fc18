"""The contents of queues read by Spark: all of them, and all are still there."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.process.nodes import NodeProcess

import moorline
from moorline.errors import NotFound
from moorline.ids import text_of
from moorline.spark.node_link import Links
from moorline.spark.options import endpoint_of
from moorline.spark.queue_reader import QueueReader

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

QUEUES = 60
Contents = dict[bytes, list[tuple[int, bytes]]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("queues") / "data") as one:
        yield one


@pytest.fixture(scope="module")
def sent(node: NodeProcess) -> Contents:
    """Some queues with messages, one of them large, and some without."""
    return asyncio.run(_send(node.address))


async def _send(address: str) -> Contents:
    found: Contents = {}
    async with moorline.connect(address) as moor:
        for number in range(QUEUES):
            queue = (await moor.create_queue()).id
            bodies = [b"%d/%d " % (number, place) * place for place in range(number % 5)]
            if number == 7:
                bodies = [bytes([place]) * 16_000 for place in range(60)]
            ids = [await moor.send(queue, body) for body in bodies]
            found[queue] = list(zip(ids, bodies, strict=True))
    return found


def contents(rows: list[Any]) -> Contents:
    found: Contents = {}
    for row in sorted(rows, key=lambda row: (bytes(row.queue), row.message)):
        found.setdefault(bytes(row.queue), []).append((row.message, bytes(row.body)))
    return found


def not_empty(sent: Contents) -> Contents:
    return {queue: messages for queue, messages in sent.items() if messages}


def test_all_queues_of_a_node_of_its_folder_and_of_a_copy(
    spark: SparkSession, node: NodeProcess, sent: Contents, tmp_path: Path
) -> None:
    reader = spark.read.format("moorline").option("queues", "*")
    rows = reader.option("address", node.address).load().collect()
    assert contents(rows) == not_empty(sent)
    assert not any(row.is_quota_marker for row in rows)
    again = spark.read.format("moorline").options(queues="*", path=str(node.data)).load()
    assert contents(again.collect()) == not_empty(sent)
    shutil.copytree(node.data / "queues", tmp_path / "copy" / "queues")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    copy = spark.read.format("moorline").options(queues="*", minPartitions="7")
    copied = copy.load(str(tmp_path / "copy"))
    assert copied.rdd.getNumPartitions() == 7
    assert contents(copied.collect()) == not_empty(sent)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert contents(reader.option("address", node.address).load().collect()) == not_empty(sent)


def test_some_queues_and_some_columns(
    spark: SparkSession, node: NodeProcess, sent: Contents
) -> None:
    queue, messages = next(iter(not_empty(sent).items()))
    options = {"queues": text_of(queue), "address": node.address}
    rows = spark.read.format("moorline").options(**options).load().collect()
    assert contents(rows) == {queue: messages}
    narrow = spark.read.format("moorline").schema("message long").options(**options).load()
    assert [row.message for row in narrow.collect()] == [number for number, _ in messages]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queues": "short"}, "queues: 'short' is not an id"),
        ({"queues": "*", "topic": "a"}, "unknown option 'topic': there are address"),
        ({"queues": "*", "path": "/usr"}, "it has no queues"),
        ({"queues": "*", "path": "/usr", "address": "tcp://127.0.0.1:1"}, "give one"),
        ({"queues": "A" * 32}, f"there is no queue {'A' * 32} in tcp://127"),
    ],
)
def test_what_is_wrong_is_named(
    spark: SparkSession, node: NodeProcess, options: dict[str, str], text: str
) -> None:
    if "path" not in options:
        options = {"address": node.address, **options}
    with pytest.raises(PySparkException, match=text):
        spark.read.format("moorline").options(**options).load().collect()


def test_a_queue_that_is_not_there_is_named_and_one_that_went_is_passed_over(
    node: NodeProcess, sent: Contents
) -> None:
    (one, messages), *_ = not_empty(sent).items()
    gone = b"\x01" * 24
    body = StructType().add("body", "binary")
    for place in ({"address": node.address}, {"path": str(node.data)}):
        both = {"queues": f"{text_of(one)},{text_of(gone)}", **place}
        reader = QueueReader(both, body)
        with pytest.raises(NotFound, match=f"there is no queue {text_of(gone)} in "):
            list(reader.read(*reader.partitions()))
    reader = QueueReader({"queues": "*", "address": node.address}, body)
    links = Links(endpoint_of({"address": node.address}))
    try:
        # As if it had been deleted between the list of all and the look at each.
        found = reader._peeked(links, [one, gone], is_named=False)
    finally:
        links.close()
    assert [(queue, message.message, message.body) for queue, message in found] == [
        (one, number, body) for number, body in messages
    ]


def test_queues_are_no_stream(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    frame = spark.readStream.format("moorline").options(queues="*", address=node.address).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match=r"use spark\.read"):
        writer.trigger(availableNow=True).start().awaitTermination()
