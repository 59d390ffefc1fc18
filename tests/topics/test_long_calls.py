"""Calls whose work grows with what a node holds: they are right, and others are answered meanwhile."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable

import pytest
from tests.access.granted import as_before_rows, unguarded

from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.config.addresses import Address
from moorline.config.settings import Streams
from moorline.core.frames.frame import frames_in, stored_at
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.limits import RECORDS_PER_CALL_MAX, RETAINED_BYTES_MAX
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.testing.memory_disk import MemoryDisk
from moorline.topics.commands import TopicBroker
from moorline.topics.streams import LocalStreams
from moorline.topics.topic_list import FirstNames
from moorline.topics.upkeep import StreamUpkeep
from moorline.wire.group import FindRetained, RetainedFound
from moorline.wire.link import Welcome
from moorline.wire.node import Echo, Echoed
from moorline.wire.topic import Publish, Record

TOPICS = 3_000
MANY, RETAINED = 266_000, 100_000


def _echo(session: Session, calls: list[Echo]) -> list[Echoed]:  # noqa: ARG001
    return [Echoed(call.call, call.body) for call in calls]


class Serving:
    """A store in memory behind real sockets."""

    def __init__(self, store: StreamStore, address: Address, streams: LocalStreams) -> None:
        self.store = store
        self.address = address
        self.streams = streams

    async def seal(self) -> None:
        """All generations end here, and are sealed: their topics are in files alone."""
        self.store.upkeep.roll(1 << 60)
        self.streams.commits.changed()
        while not self.store.upkeep.unsealed():
            await asyncio.sleep(0)
        await StreamUpkeep(self.streams)._seal()


@contextlib.asynccontextmanager
async def serving(shards: int = 2) -> AsyncIterator[Serving]:
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=shards, sync=False), lambda: 1)
    store.open()
    streams = LocalStreams(store, "n1")
    broker = TopicBroker(streams, Streams())
    protocol = NativeProtocol(
        {**unguarded(broker.declared()), Echo: _echo},
        lambda version, keepalive_ms: Welcome(version, "n1", keepalive_ms=keepalive_ms),
    )
    listeners = Listeners(Admission("loopback", 10, 60_000, 60_000), rights_of=as_before_rows)
    (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
    try:
        yield Serving(store, address, streams)
    finally:
        broker.close()
        await listeners.close()
        await streams.close()
        store.close()


@pytest.fixture
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is one step: the order of events does not depend on the machine."""
    monkeypatch.setattr("moorline.net.slices.SLICE_MS", 0)
    monkeypatch.setattr("moorline.net.session.SESSION_TURN_MS", 0)


async def echoes_during(other: Moor, work: Awaitable[object]) -> int:
    """How often another client was answered while that one was not."""
    task = asyncio.ensure_future(work)
    count = 0
    while not task.done():
        await other.echo(b"there?")
        count += not task.done()
    await task
    return count


async def everything(moor: Moor, text: str = "#", count: int = 1_000) -> list[tuple[str, int]]:
    rows: list[tuple[str, int]] = []
    while page := await moor.topics(text, rows[-1][0] if rows else "", count):
        rows += page
    return rows


@pytest.mark.usefixtures("_short_slices")
async def test_others_are_answered_while_topics_are_listed_and_retained_ones_found() -> None:
    """A33: in slices, of a few thousand."""
    async with (
        serving() as served,
        connect(str(served.address)) as moor,
        connect(str(served.address)) as other,
    ):
        records = [record(f"many/{n}", b"x", retain=True) for n in range(TOPICS)]
        await moor.publish_all(records)
        found: list[RetainedFound] = []

        async def find(text: str) -> None:
            asked = moor._caller.call(lambda call: FindRetained(call, text), RetainedFound)
            found.append(await asked)

        assert await echoes_during(other, moor.topics("+/none")) > 3
        assert await echoes_during(other, moor.topics()) > 3
        assert await echoes_during(other, find("many/+")) > 3
        assert await echoes_during(other, find("+/+/none")) > 3
        topics = [stored_at(frame, 0).topic for frame in frames_in(found[0].frames)]
        assert sorted(topics) == sorted(one.topic for one in records)
        assert found[1].frames == b""
        # A name without wildcards is found without looking at others.
        await find("many/7")
        assert stored_at(found[2].frames, 0).topic == "many/7"


@pytest.mark.slow
async def test_very_many_topics_and_retained_messages_are_listed_and_matched() -> None:
    """A33: 266,000 topics, 100,000 of them retained: in pages, and others are answered meanwhile."""
    async with (
        serving(shards=8) as served,
        connect(str(served.address)) as moor,
        connect(str(served.address)) as other,
    ):
        for first in range(0, MANY, RECORDS_PER_CALL_MAX):
            last = min(MANY, first + RECORDS_PER_CALL_MAX)
            await moor.publish_all(
                [record(f"many/{n}", b"x", retain=n < RETAINED) for n in range(first, last)]
            )
        found: list[tuple[str, int]] = []

        async def list_all() -> None:
            found.extend(await everything(moor))

        assert await echoes_during(other, list_all()) > 100
        assert len(found) == len(set(found)) == MANY
        assert await moor.topics("+/+/none") == []
        matched: list[bytes] = []

        async def match(text: str) -> None:
            asked = moor._caller.call(lambda call: FindRetained(call, text), RetainedFound)
            matched.append((await asked).frames)

        # Of a wide filter the first that fit; of a narrow one what it names, among all of them.
        for text in ("+/+/none", "many/+", f"many/{RETAINED - 1}"):
            await match(text)
        none, some, named = matched
        assert none == b""
        assert 0 < len(some) <= RETAINED_BYTES_MAX
        assert stored_at(named, 0).topic == f"many/{RETAINED - 1}"


@pytest.mark.usefixtures("_short_slices")
async def test_others_are_answered_while_many_small_messages_of_one_frame_are_stored() -> None:
    async with (
        serving() as served,
        connect(str(served.address)) as moor,
        connect(str(served.address)) as other,
    ):
        batch = [Record("t", b"")] * (RECORDS_PER_CALL_MAX // 8)
        calls = moor._caller.call_all([lambda call: Publish(call, batch) for _ in range(40)])
        assert await echoes_during(other, calls) > 3
        assert served.store.end(0) + served.store.end(1) == 40 * len(batch)


async def test_pages_of_any_size_are_all_topics_with_their_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A33: walks that find less than there is go on where they ended; what is sealed is read from files."""
    monkeypatch.setattr(FirstNames.__init__, "__defaults__", (50,))
    async with serving() as served, connect(str(served.address)) as moor:
        names = [f"a/{n % 7}/{n}" for n in range(400)]
        await moor.publish_all([record(name, b"1") for name in names])
        await served.seal()
        await moor.publish_all([record(name, b"2") for name in names[::2]])
        expected = sorted((name, 1 + (n % 2 == 0)) for n, name in enumerate(names))
        for count in (1, 49, 50, 51, 1_000):
            assert await everything(moor, count=count) == expected
        assert await everything(moor, "a/3/+", count=10) == [
            row for row in expected if row[0].startswith("a/3/")
        ]
        assert await everything(moor, "b/#") == []
        assert await moor.topics(after=expected[9][0], count=2) == expected[10:12]


async def test_what_is_there_during_the_whole_listing_is_in_it_once() -> None:
    async with (
        serving() as served,
        connect(str(served.address)) as moor,
        connect(str(served.address)) as other,
    ):
        names = sorted(f"kept/{n}" for n in range(500))
        await moor.publish_all([record(name, b"") for name in names])
        rows: list[tuple[str, int]] = []
        chance = random.Random(1)
        while page := await moor.topics("#", rows[-1][0] if rows else "", 20):
            rows += page
            await other.publish(f"new/{chance.random()}", b"")
            await other.topics("#", count=3)
            if len(rows) == 200:
                await served.seal()
        found = [topic for topic, _ in rows if topic.startswith("kept/")]
        assert found == names
        # A listing that begins has what was published before.
        await other.publish("kept/!", b"")
        assert (await moor.topics())[0] == ("kept/!", 1)


async def test_listings_that_were_begun_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorline.topics.topic_list.LISTINGS_KEPT_MAX", 2)
    async with serving() as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(str(served.address))) for _ in range(4)]
        await clients[0].publish_all([record(f"t/{n:03}", b"") for n in range(100)])
        pages = [await client.topics(count=10) for client in clients]
        # Whose listing was given up is told the same: it is walked again from there.
        rest = [await everything(client, count=30) for client in clients]
        assert all(page == pages[0] for page in pages)
        assert all([topic for topic, _ in one] == [f"t/{n:03}" for n in range(100)] for one in rest)
