"""Streams read by somebody who may read some topics: what leaves the node, what is skipped, what is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path

import pytest
from tests.access.topic_server import TopicServer, row, topic_server
from tests.catalog.databases import new_database

from moorline import record
from moorline.catalog.embedded import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.core.delivery.selection import Selection
from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.core.stream import Extent
from moorline.errors import BadTopic, Denied, NotFound
from moorline.limits import STREAM_READ_BYTES_MAX
from moorline.topics import filtered_reads
from moorline.wire.group import FindOffsets, OffsetsFound
from moorline.wire.stream_file import (
    ClusterDescribed,
    DescribeCluster,
    DescribeShards,
    MatchingRead,
    ReadMatching,
    ReadStreamFile,
    ShardsDescribed,
    StreamFileRead,
)

ALL = 1 << 20
MAY = row("/topics/shown", "alice", "s")


@pytest.fixture
async def server(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[TopicServer]:
    async with topic_server(await new_database(postgres), tmp_path, MAY) as found:
        yield found


def extent_of(server: TopicServer) -> Extent:
    """Of the stream that has messages."""
    (found,) = (one for one in server.topics.streams.store.extents() if one.end > one.first)
    return found


async def read(
    moor: Moor,
    extent: Extent,
    *filters: str,
    upto: int = ALL,
    bytes_max: int = STREAM_READ_BYTES_MAX,
) -> MatchingRead:
    make = partial(
        ReadMatching,
        shard=extent.stream.shard_number,
        generation=extent.stream.generation,
        offset=extent.first,
        upto=upto,
        bytes_max=bytes_max,
        filters=list(filters),
    )
    return await moor._caller.call(make, MatchingRead)


async def is_denied(asked: Awaitable[object]) -> str:
    with pytest.raises(Denied) as caught:
        await asked
    return str(caught.value)


def told(found: MatchingRead) -> list[tuple[int, str, bytes]]:
    return [(one.offset, one.topic, one.body) for one in all_stored(found.frames)]


async def published(server: TopicServer) -> Extent:
    """Of one key, so that all are in one stream: of every three the second is shown."""
    topics = ("hidden", "shown/a", "$other") * 3
    records = [record(topic, b"%d" % number, key=b"k") for number, topic in enumerate(topics)]
    async with server.connected() as operator:
        await operator.publish_all(records)
    return extent_of(server)


async def test_only_what_the_filters_take_leaves_the_node(server: TopicServer) -> None:
    extent = await published(server)
    async with server.connected("alice") as alice:
        found = await read(alice, extent, "shown/#")
        assert (found.first, found.upto, found.skipped, found.reason) == (extent.first, 9, 6, "")
        assert told(found) == [(1, "shown/a", b"1"), (4, "shown/a", b"4"), (7, "shown/a", b"7")]
        assert b"hidden" not in found.frames
        assert server.topics.files.filtered.skipped == 6
        part = await read(alice, extent, "shown/#", upto=5)
        assert (part.upto, [offset for offset, _, _ in told(part)]) == (5, [1, 4])
        some = await read(alice, extent, "shown/+", "shown/b", bytes_max=1)
        assert (some.first, some.upto, some.frames, some.skipped) == (0, 1, b"", 1), "no loss"


async def test_a_filter_that_is_not_granted_gives_nothing_of_the_others_either(
    server: TopicServer,
) -> None:
    extent = await published(server)
    async with server.connected("alice") as alice:
        for filters in (("#",), ("shown/#", "hidden"), ("+/a",), ("$other",)):
            await is_denied(read(alice, extent, *filters))
        assert {act for _, act, _, _ in server.refusals} == {"ReadMatching"}
        with pytest.raises(BadTopic):
            await read(alice, extent, "shown/#/x")
        stream = extent.stream
        file = partial(
            ReadStreamFile,
            shard=stream.shard_number,
            generation=stream.generation,
            part="segment",
            position=0,
            bytes_max=100,
        )
        await is_denied(alice._caller.call(file, StreamFileRead))


async def test_a_right_that_is_taken_while_it_reads_gives_nothing(
    server: TopicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    extent = await published(server)
    loop, plain = asyncio.get_running_loop(), filtered_reads.chosen_frames

    def chosen(block: Block, upto: int, filters: list[str], room: int) -> Selection:
        """In the thread, while the loop goes on."""
        changed = server.change(removed=(MAY,))
        asyncio.run_coroutine_threadsafe(changed, loop).result(30)
        return plain(block, upto, filters, room)

    async with server.connected("alice") as alice:
        assert told(await read(alice, extent, "shown/#"))
        monkeypatch.setattr(filtered_reads, "chosen_frames", chosen)
        await is_denied(read(alice, extent, "shown/#"))
    assert server.refusals == [("alice", "ReadMatching", "/topics/shown/#", "DENIED")]


async def test_how_far_streams_go_is_told_to_whoever_may_read_what_it_names(
    server: TopicServer,
) -> None:
    await published(server)
    asked = (
        (DescribeCluster, ClusterDescribed),
        (DescribeShards, ShardsDescribed),
        (partial(DescribeShards, since=[(0, 0)], counts=[(0, 9)]), ShardsDescribed),
        (partial(FindOffsets, time_us=0), OffsetsFound),
    )
    async with server.connected("alice") as alice:
        for make, reply in asked:
            assert (await alice._caller.call(partial(make, filters=["shown/#"]), reply)).call
            for filters in ([], ["#"], ["shown/#", "hidden"]):
                await is_denied(alice._caller.call(partial(make, filters=filters), reply))


async def test_what_is_not_there_is_told_apart_from_what_is_skipped(server: TopicServer) -> None:
    extent = await published(server)
    async with server.connected("alice") as alice:
        at_end = extent._replace(first=extent.end)
        found = await read(alice, at_end, "shown/#")
        assert (found.first, found.upto, found.frames) == (extent.end, extent.end, b"")
        stream = extent.stream._replace(generation=extent.stream.generation + 7)
        with pytest.raises(NotFound):
            await read(alice, extent._replace(stream=stream), "shown/#")
