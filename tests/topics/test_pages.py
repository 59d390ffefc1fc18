"""Lists that are longer than an answer can be: told page by page, and known whole."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.access.granted import as_before_rows, unguarded

from moorline.client.connecting import connect
from moorline.config.addresses import Address
from moorline.config.settings import Streams
from moorline.core.stream import Extent
from moorline.errors import CallFailed
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import STREAMS_PER_PAGE_MAX
from moorline.net.caller import Caller, open_caller
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.testing.memory_disk import MemoryDisk
from moorline.topics.commands import TopicBroker
from moorline.topics.directory import News, all_streams
from moorline.topics.streams import LocalStreams
from moorline.wire.group import StreamsChanged
from moorline.wire.link import Welcome
from moorline.wire.message import Message
from moorline.wire.topic import DescribeStreams, StreamsDescribed

NODE = "n" * 63
STREAMS = 14_000
"""More than fit one answer."""


@pytest.fixture(scope="module")
def store() -> StreamStore:
    """Two shards, the first of them with very many generations."""
    store = StreamStore(MemoryDisk(), NODE, StreamOptions(shards=2, sync=False), lambda: 1)
    store.open()
    for offset in range(1, STREAMS):
        store.skip_to(0, offset)
    return store


@contextlib.asynccontextmanager
async def serving(store: StreamStore) -> AsyncIterator[tuple[LocalStreams, Address]]:
    streams = LocalStreams(store, NODE)
    broker = TopicBroker(streams, Streams())
    protocol = NativeProtocol(
        unguarded(broker.declared()),
        lambda version, keepalive_ms: Welcome(version, NODE, keepalive_ms=keepalive_ms),
    )
    listeners = Listeners(Admission("loopback", 10, 60_000, 60_000), rights_of=as_before_rows)
    (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
    try:
        yield streams, address
    finally:
        broker.close()
        await listeners.close()
        await streams.close()


@pytest.mark.slow
async def test_a_client_sees_all_streams(store: StreamStore) -> None:
    async with serving(store) as (_, address), connect(str(address)) as moor:
        told = await moor.streams()
        known = [(one.shard, one.generation, one.first, one.end) for one in told.streams]
        assert known == [
            (one.stream.shard_number, one.stream.generation, one.first, one.end)
            for one in store.extents()
        ]
        assert len(known) == STREAMS + 1
        # Whoever asks for all at once is told that they are too many, and not given a part of them.
        with pytest.raises(CallFailed, match="does not fit"):
            await moor._caller.call(DescribeStreams, StreamsDescribed)


@pytest.mark.slow
async def test_another_node_sees_all_streams_and_their_changes_whole(store: StreamStore) -> None:
    seen: list[list[Extent]] = []
    news = News(seen.append)

    def pushed(messages: list[Message]) -> None:
        for message in messages:
            assert isinstance(message, StreamsChanged)
            news.hear(message)

    def caller() -> Caller:
        return Caller("test", hello_timeout_ms=60_000, keepalive_ms=60_000, pushed=pushed)

    async with serving(store) as (streams, address):
        link = await open_caller(address, caller, timeout_ms=60_000)
        assert await all_streams(link) == store.extents()
        assert not seen
        # A shard is told whole, however long it is.
        store.skip_to(0, store.end(0) + 1)
        streams.look_for_new_generations()
        async with asyncio.timeout(30):
            while not seen:
                await asyncio.sleep(0.001)
        assert seen == [store.extents([0])]
        assert news.changed == {store.extents([0])[0].stream.shard}
        link.close("DONE", "")


@pytest.mark.parametrize("count", [1, 7, 100, STREAMS_PER_PAGE_MAX])
def test_pages_of_any_size_are_all_streams(count: int) -> None:
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=3, sync=False), lambda: 1)
    store.open()
    for offset in range(1, 50):
        store.skip_to(1, offset)
    found: list[Extent] = []
    after = (-1, -1)
    while page := store.page(after, count):
        assert len(page) <= count
        found += page
        after = (page[-1].stream.shard_number, page[-1].stream.generation)
    assert found == store.extents() == store.page((-1, -1), 0)
