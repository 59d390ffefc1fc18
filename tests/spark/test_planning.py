"""Ranges of streams, without Spark: shares of a limit, parts of tasks, and what is missing."""

import pytest

from moorline.core.stream import Extent, Stream
from moorline.errors import ConfigError
from moorline.journal.streams.source import extents_by_shard
from moorline.spark.planning import (
    ExtentsByShard,
    Range,
    ShardGap,
    check_order,
    limited,
    ranges,
    resolved,
    tasks,
)
from moorline.spark.streams import named


def extent(shard: int, generation: int, first: int, end: int) -> Extent:
    return Extent(Stream("node-1", shard, generation), first, end, True)


@pytest.fixture
def shard_extents() -> ExtentsByShard:
    """Shard 0 has two streams, of which the first hundred messages are gone; shard 1 has one."""
    extents = [extent(0, 3, 200, 250), extent(0, 2, 100, 200), extent(1, 1, 0, 40)]
    return named(extents_by_shard(extents))


def test_a_limit_is_shared_by_what_waits() -> None:
    start = {"a/0": 0, "a/1": 100, "a/2": 7}
    end = {"a/0": 900, "a/1": 200, "a/2": 7}
    assert limited(start, end, 100) == {"a/0": 90, "a/1": 110, "a/2": 7}
    assert limited(start, end, 1_000) == end
    # A shard with little in it gets on as well, if it is only by one.
    assert limited({"a/0": 0, "a/1": 0}, {"a/0": 999, "a/1": 1}, 10) == {"a/0": 9, "a/1": 1}


def test_places_are_offsets_or_words() -> None:
    bounds = {"node-1/0": (100, 250), "node-1/1": (0, 40)}
    assert resolved("earliest", "", bounds, "x") == {"node-1/0": 100, "node-1/1": 0}
    assert resolved("latest", "", bounds, "x") == {"node-1/0": 250, "node-1/1": 40}
    assert resolved({"node-1/0": 120}, "earliest", bounds, "x") == {"node-1/0": 120, "node-1/1": 0}
    assert resolved({"node-1/0": -1, "node-1/1": -2}, "latest", bounds, "x") == {
        "node-1/0": 250,
        "node-1/1": 0,
    }
    with pytest.raises(ConfigError, match="startingOffsets: there is no stream 'node-1/7'"):
        resolved({"node-1/7": 0}, "earliest", bounds, "startingOffsets")
    with pytest.raises(ConfigError, match="'node-1/1' has messages up to 40, not to 41"):
        resolved({"node-1/1": 41}, "earliest", bounds, "startingOffsets")


def test_ranges_follow_the_streams_and_name_what_is_gone(shard_extents: ExtentsByShard) -> None:
    found, gaps = ranges(
        {"node-1/0": 0, "node-1/1": 10}, {"node-1/0": 220, "node-1/1": 50}, shard_extents
    )
    assert found == [
        Range(Stream("node-1", 0, 2), 100, 200),
        Range(Stream("node-1", 0, 3), 200, 220),
        Range(Stream("node-1", 1, 1), 10, 40),
    ]
    assert gaps == [ShardGap("node-1/0", 0, 100), ShardGap("node-1/1", 40, 50)]
    assert str(gaps[0]) == "100 messages of node-1/0, 0 to 99"
    # A hole in the middle of a shard, whose head was damaged.
    holey = named(extents_by_shard([extent(0, 1, 0, 10), extent(0, 3, 30, 40)]))
    assert ranges({"node-1/0": 0}, {"node-1/0": 40}, holey)[1] == [ShardGap("node-1/0", 10, 30)]


@pytest.mark.parametrize(("min_partitions", "max_records"), [(0, 7), (9, 0), (3, 0), (4, 30)])
def test_tasks_have_every_message_once(
    shard_extents: ExtentsByShard, min_partitions: int, max_records: int
) -> None:
    found, _ = ranges(
        {"node-1/0": 100, "node-1/1": 0}, {"node-1/0": 250, "node-1/1": 40}, shard_extents
    )
    made = tasks(found, min_partitions, max_records)
    assert len(made) >= min_partitions
    if max_records:
        assert max(sum(part.messages for part in task) for task in made) <= max_records
    messages = [
        (part.stream, offset)
        for task in made
        for part in task
        for offset in range(part[1], part[2])
    ]
    wanted = [(part.stream, offset) for part in found for offset in range(part[1], part[2])]
    assert messages == wanted


def test_small_streams_of_a_shard_share_a_task(shard_extents: ExtentsByShard) -> None:
    found, _ = ranges(
        {"node-1/0": 100, "node-1/1": 0}, {"node-1/0": 250, "node-1/1": 40}, shard_extents
    )
    assert [[part.stream.shard_number for part in task] for task in tasks(found, 0, 0)] == [
        [0, 0],
        [1],
    ]


def test_a_start_above_its_end_is_refused_by_name() -> None:
    check_order({"a/0": 5, "a/1": 7}, {"a/0": 5, "a/1": 8})
    with pytest.raises(ConfigError, match="the start of 'a/1' is 9, above its end, 8"):
        check_order({"a/0": 5, "a/1": 9}, {"a/0": 5, "a/1": 8})
