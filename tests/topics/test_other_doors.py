"""Another front door than the native one stores messages, and hears when they are durable."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.access.granted import GivenRights

from moorline.access.demands import Demands
from moorline.config.settings import Streams as Settings
from moorline.core.access.right import EVERYTHING
from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.errors import BadTopic, TooLarge
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.testing import HandClock, MemoryDisk
from moorline.topics.publishing import Publishing
from moorline.topics.streams import LocalStreams
from moorline.wire.shard_choice import shard_of
from moorline.wire.topic import Record


class Door:
    """A session of another front door."""

    rights: SessionRights = GivenRights("eve", EVERYTHING)
    allowance: SessionAllowance | None = None

    def __init__(self) -> None:
        self.is_held = False

    def answer(self, answers: list[Any]) -> None:  # noqa: ARG002
        raise AssertionError("it is called back, and gets no answers")

    def hold_reading(self, reason: str) -> None:  # noqa: ARG002
        self.is_held = True

    def release_reading(self, reason: str) -> None:  # noqa: ARG002
        self.is_held = False


@pytest.fixture
async def publishing() -> AsyncIterator[Publishing]:
    clock = HandClock()
    store = StreamStore(
        MemoryDisk(), "n1", StreamOptions(shards=2), lambda: clock.wall_ms() * 1_000
    )
    store.open()
    streams = LocalStreams(store, "n1")
    yield Publishing(streams, Settings(message_bytes_max=100), Demands())
    await streams.close()
    store.close()


async def test_it_is_called_back_in_order_when_readers_may_see_the_messages(
    publishing: Publishing,
) -> None:
    store, told, done = publishing.streams.store, list[int](), asyncio.Event()
    home = shard_of(b"a/b", 2)
    end = store.end(home)
    for number in range(3):
        records = [Record("a/b", b"%d" % number), Record("a/b", b"more", headers=[("h", b"v")])]

        def heard(number: int = number) -> None:
            assert store.end(home) == end + 6
            told.append(number)
            if number == 2:
                done.set()

        shard, offset, count, duplicates = publishing.publish(Door(), records, heard)
        assert (shard, offset, count, duplicates) == (home, end + 2 * number + 1, 2, 0)
        assert told == []
    await asyncio.wait_for(done.wait(), 10)
    assert told == [0, 1, 2]
    block = store.read(home, store.generation_of(home, 0), 0, 10_000)
    assert isinstance(block, Block)
    bodies = [one.body for one in all_stored(block.data)]
    assert bodies == [b"0", b"more", b"1", b"more", b"2", b"more"]


async def test_of_a_call_that_is_refused_nothing_is_stored_and_nobody_is_called_back(
    publishing: Publishing,
) -> None:
    told: list[str] = []
    for bad, error in (
        (Record("a/#", b""), BadTopic),
        (Record("a", bytes(101)), TooLarge),
    ):
        with pytest.raises(error):
            publishing.publish(Door(), [Record("a", b"1"), bad], lambda: told.append("refused"))
    publishing.publish(Door(), [Record("a", b"2")], lambda: told.append("stored"))
    await asyncio.wait_for(publishing.streams.commits.durable(), 10)
    assert told == ["stored"]
    assert publishing.counts.published == 1
    assert publishing.counts.refused == 4
