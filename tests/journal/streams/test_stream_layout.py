"""The line that says what the streams of a folder are as a whole: it is believed as far as it can be true."""

import pytest

from moorline.errors import StartError
from moorline.journal.streams.layout import PATH, read_layout, write_layout
from moorline.limits import STREAM_SHARDS_MAX
from moorline.testing import MemoryDisk


def test_the_number_of_shards_is_read_back() -> None:
    disk = MemoryDisk()
    assert read_layout(disk) == 0
    write_layout(disk, "n1", STREAM_SHARDS_MAX)
    assert read_layout(disk) == STREAM_SHARDS_MAX


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"node=n1",
        b"node=n1 shards= version=2",
        b"node=n1 shards=-8 version=2",
        b"node=n1 shards=%d version=2" % (STREAM_SHARDS_MAX + 1),
        b"node=n1 shards=99999999999999999999 version=2",
        b"\xff\x00shards=x",
    ],
)
def test_a_number_that_cannot_be_is_none(text: bytes) -> None:
    disk = MemoryDisk()
    disk.write_whole(PATH, text)
    assert read_layout(disk) == 0


def test_a_layout_without_a_log_of_small_commits_is_read_as_ever() -> None:
    disk = MemoryDisk()
    disk.write_whole(PATH, b"node=n1 shards=8 version=2\n")
    assert read_layout(disk) == 8
    write_layout(disk, "n1", 8)
    assert b"version=3" in disk.files()[PATH]
    disk.write_whole(PATH, b"node=n1 shards=8 version=1\n")
    with pytest.raises(StartError, match="older Moorline"):
        read_layout(disk)


def test_a_layout_of_tomorrow_is_refused() -> None:
    disk = MemoryDisk()
    disk.write_whole(PATH, b"node=n1 shards=8 version=5\n")
    with pytest.raises(StartError, match="newer Moorline"):
        read_layout(disk)
