"""What a reader of another node's stream does not want is passed over while it reads, and is no loss."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import numpy as np
import pytest

from moorline.cluster.links import Links
from moorline.config.settings import Config
from moorline.core.delivery.effects import Deliver, TellLost
from moorline.core.delivery.feed import Feed
from moorline.core.delivery.open_feed import Window
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.frames.block import Block, block_of
from moorline.core.frames.frame import Stored, all_stored, frame_of
from moorline.core.stream import Gap, Stream
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.sessions import delivery_host
from moorline.sessions.delivery_host import DeliveryHost
from moorline.testing import MemoryDisk
from moorline.topics.directory import StreamDirectory
from moorline.topics.shared_reads import SharedReads
from moorline.topics.streams import LocalStreams

STREAM = Stream("n2", 0, 1)
WITHIN_S = 20


def block(first: int, *topics: str) -> Block:
    frames = [
        frame_of(Stored(offset, 1, 0, 0, topic, None, b"", 0, 0, b"body"), 0)
        for offset, topic in enumerate(topics, first)
    ]
    positions = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
    return block_of(first, b"".join(frames), positions)


class Alone:
    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:  # noqa: ARG002
        return {}


class Client:
    """Gets what is delivered."""

    is_open = has_room = True

    def __init__(self) -> None:
        self.got: list[tuple[int, str]] = []
        self.lost: list[TellLost] = []

    def deliver(self, effect: Deliver) -> None:
        self.got += [(one.offset, one.topic) for one in all_stored(effect.frames)]

    def tell_lost(self, effect: TellLost) -> None:
        self.lost.append(effect)

    async def room(self) -> None: ...
    def begin_feed(self, feed: Feed, qos: int) -> None: ...
    def end_turn(self) -> None: ...
    def stop_feed(self, feed: Feed) -> None: ...
    def end_feed(self, feed: Feed) -> None: ...
    def end_subscription(self, number: int, code: str) -> None: ...


class Scene:
    """A host with one feed of another node's stream, whose blocks come by hand."""

    def __init__(self, directory: StreamDirectory, *, is_plain: bool = True) -> None:
        self.client = Client()
        self.asked: list[int] = []
        self.blocks: asyncio.Queue[Block | Gap | None] = asyncio.Queue()
        directory._reads = SharedReads(self._read)
        self.host = DeliveryHost(self.client, directory)
        self.turns: list[str] = []
        """Effects, by their names: what the machine had done."""
        performers = self.host.performers()

        def perform(effects: Iterable[Effect]) -> None:
            for effect in effects:
                self.turns.append(type(effect).__name__)
                if type(effect) in performers:
                    performers[type(effect)](effect)

        self.host.perform = perform
        if is_plain:
            self.host.plain.add(1)
        self.feed = Feed(1, 1, STREAM, Cursor(0))
        self.host.open(self.feed, Window(1, "wanted/#", 100, 1))

    async def _read(self, stream: Stream, offset: int) -> Block | Gap | None:
        assert stream == STREAM
        self.asked.append(offset)
        return await self.blocks.get()

    async def asks(self, offset: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not self.asked or self.asked[-1] != offset:
                await asyncio.sleep(0)


@pytest.fixture
async def directory() -> AsyncIterator[StreamDirectory]:
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=1, sync=False), lambda: 1)
    store.open()
    local = LocalStreams(store, "n1")
    yield StreamDirectory(local, Links(Config(), Alone(), "n1"))
    await local.close()
    store.close()


async def test_what_is_not_wanted_takes_no_turn_and_what_is_comes_behind_it(
    directory: StreamDirectory,
) -> None:
    scene = Scene(directory)
    await scene.asks(0)
    scene.turns.clear()
    for first in range(0, 20, 2):
        scene.blocks.put_nowait(block(first, "other", "others"))
        await scene.asks(first + 2)
    assert scene.turns == [], "nothing for the machine"
    scene.blocks.put_nowait(block(20, "other", "wanted/1", "other", "wanted/2"))
    await scene.asks(24)
    assert scene.client.got == [(21, "wanted/1"), (23, "wanted/2")]
    assert (scene.feed.next, scene.client.lost) == (24, [])
    scene.host.close()


async def test_one_of_a_group_says_how_far_it_is_with_each_block(
    directory: StreamDirectory,
) -> None:
    scene = Scene(directory, is_plain=False)
    await scene.asks(0)
    scene.blocks.put_nowait(block(0, "other"))
    await scene.asks(1)
    assert scene.feed.next == 1
    scene.host.close()


async def test_its_place_is_noted_after_a_moment_and_before_a_gap(
    directory: StreamDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(directory)
    await scene.asks(0)
    scene.blocks.put_nowait(block(0, "other", "other"))
    await scene.asks(2)
    assert scene.feed.next == 0
    scene.blocks.put_nowait(Gap(2, 5, "retention"))
    async with asyncio.timeout(WITHIN_S):
        while scene.feed.next != 2 or len(scene.asked) < 3:
            await asyncio.sleep(0)
    assert (scene.asked, scene.client.lost) == ([0, 2, 2], [])
    monkeypatch.setattr(delivery_host, "STREAM_PASS_MS", 0)
    scene.blocks.put_nowait(Gap(2, 5, "retention"))
    await scene.asks(5)
    assert len(scene.client.lost) == 1
    scene.blocks.put_nowait(block(5, "other"))
    await scene.asks(6)
    assert scene.feed.next == 6, "no moment, no passing"
    scene.host.close()


async def test_whoever_gives_something_back_meanwhile_gets_that_first(
    directory: StreamDirectory,
) -> None:
    scene = Scene(directory)
    await scene.asks(0)
    scene.blocks.put_nowait(block(0, "wanted/1"))
    await scene.asks(1)
    scene.host.give_back(1, [(0, 1)])
    scene.blocks.put_nowait(block(1, "other"))
    await scene.asks(0)
    scene.blocks.put_nowait(block(0, "wanted/1"))
    async with asyncio.timeout(WITHIN_S):
        while len(scene.client.got) < 2:
            await asyncio.sleep(0)
    assert scene.client.got == [(0, "wanted/1"), (0, "wanted/1")]
    scene.host.close()
