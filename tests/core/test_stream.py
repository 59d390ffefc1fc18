"""Names of streams and shards: how they print, sort and travel."""

import msgspec
import pytest

from moorline.core.stream import RETENTION, Extent, Gap, Shard, Stream
from moorline.limits import NAME_CHARACTERS_MAX


def test_a_stream_is_of_a_shard() -> None:
    stream = Stream("n1", 3, 7)
    assert stream.shard == Shard("n1", 3)
    assert (str(stream), str(stream.shard)) == ("n1/3/7", "n1/3")


def test_streams_sort_by_generation_within_their_shard() -> None:
    streams = [Stream("n1", 1, 10), Stream("n1", 1, 9), Stream("n1", 0, 11), Stream("m", 5, 5)]
    assert sorted(streams) == [streams[3], streams[2], streams[1], streams[0]]


def test_an_extent_and_a_gap_travel_as_lists() -> None:
    extent = Extent(Stream("n1", 0, 2), 10, 20, True)
    assert msgspec.json.decode(msgspec.json.encode(extent), type=Extent) == extent
    gap = Gap(3, 9, RETENTION)
    assert msgspec.json.encode(gap) == b'[3,9,"RETENTION"]'


def test_a_name_beyond_its_bound_is_refused() -> None:
    data = msgspec.msgpack.encode(Shard("n" * (NAME_CHARACTERS_MAX + 1), 0))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=Shard)
