"""A task that reads one topic of a folder: it gets the same rows, and of other topics it reads nothing."""

from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from tests.journal.streams.lives import Lives

from moorline.errors import MessagesGone
from moorline.journal.disk import FileDisk
from moorline.journal.streams.generation import SEGMENT, TOPICS
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


def values(folder: Path, topics: str) -> list[bytes]:
    options = topic_options({"path": str(folder), "topics": topics}, is_stream=False)
    reader = TopicBatchReader(options, StructType().add("topic", "string").add("value", "binary"))
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
