"""A task that reads one topic, of a folder or of a node: it gets the same rows, and of other topics it reads
nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from tests.journal.streams.lives import Lives
from tests.process.nodes import NodeProcess
from tests.waiting import eventually

import moorline
from moorline.errors import MessagesGone
from moorline.journal.disk import FileDisk
from moorline.journal.streams.generation import SEAL, SEGMENT, TOPICS
from moorline.journal.streams.store import StreamOptions
from moorline.spark.options import topic_options
from moorline.spark.topic_reader import TopicBatchReader

COUNT = 5_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One sealed stream, in which a hundred topics take turns."""
    streams = tmp_path / "streams"
    streams.mkdir()
    lives = Lives(FileDisk(streams), StreamOptions(shards=1))
    for number in range(COUNT):
        lives.put(f"t/{number % 100}", b"body %d" % number)
    lives.commit()
    lives.store.upkeep.roll(lives.now_us() + 10**15)
    lives.commit()
    lives.seal()
    lives.store.close()
    return tmp_path


def values(where: Path | str, topics: str, *more: str) -> list[bytes]:
    """Of a folder, or of the node at an address."""
    place = {"path": str(where)} if isinstance(where, Path) else {"address": where}
    options = topic_options({**place, "topics": topics}, is_stream=False)
    schema = StructType().add("topic", "string").add("value", "binary")
    for name in more:
        schema.add(name, "binary")
    reader = TopicBatchReader(options, schema)
    return [
        value
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


@pytest.mark.parametrize("topics", ["t/7", "+/7", "t/7,t/93"])
def test_rows_are_the_same_with_lists_and_without(folder: Path, topics: str) -> None:
    with_lists = values(folder, topics)
    assert len(with_lists) in (COUNT // 100, COUNT // 50)
    (folder / "streams/000" / f"00000001{TOPICS}").unlink()
    assert with_lists == values(folder, topics)


def test_a_frame_of_another_topic_is_not_read(folder: Path) -> None:
    """Whoever reads everything finds it damaged."""
    path = folder / "streams/000" / f"00000001{SEGMENT}"
    path.write_bytes(path.read_bytes().replace(b"body 1234", b"bodY 1234"))
    assert len(values(folder, "t/7")) == COUNT // 100
    with pytest.raises(MessagesGone):
        values(folder, "t/34")
    (folder / "streams/000" / f"00000001{TOPICS}").unlink()
    with pytest.raises(MessagesGone):
        values(folder, "t/7")


# --- of a node ------------------------------------------------------------------------------------

NODE = ("--set=streams.shards=1", "--set=streams.generation_bytes_max=200000")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of a node that has two streams with the same messages, the first of them sealed."""
    with NodeProcess(tmp_path / "data", *NODE) as node:
        asyncio.run(_publish_twice(node.address))
        eventually(lambda: (node.data / "streams/000" / f"00000001{SEAL}").exists())
    return node.data


async def _publish_twice(address: str) -> None:
    async with moorline.connect(address) as moor:
        for _ in range(2):
            bodies = [(f"t/{number % 100}", b"body %d" % number) for number in range(COUNT)]
            await moor.publish_all([moorline.record(topic, body) for topic, body in bodies])


@pytest.fixture
def address(data: Path) -> Iterator[str]:
    """The same, where nothing is in memory, and a message of the sealed stream is damaged."""
    path = data / "streams/000" / f"00000001{SEGMENT}"
    path.write_bytes(path.read_bytes().replace(b"body 1234", b"bodY 1234"))
    with NodeProcess(data, *NODE) as node:
        yield node.address


@pytest.mark.process
def test_of_a_node_a_frame_of_another_topic_is_not_read(address: str) -> None:
    for topics in ("t/7", "+/7", "t/7,t/93"):
        wanted = [n for n in range(COUNT) if n % 100 in ((7, 93) if "93" in topics else (7,))]
        assert values(address, topics) == [b"body %d" % n for n in (*wanted, *wanted)]
    for topics in ("t/34", "t/#"):
        with pytest.raises(MessagesGone):
            values(address, topics)
    with pytest.raises(MessagesGone):
        values(address, "t/7", "raw_headers")
