"""What a node makes of what another one says of its streams, in the test's own process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from moorline.cluster.links import Links
from moorline.config.settings import Config
from moorline.core.stream import Extent, Shard, Stream
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.sessions.commands import SessionBroker
from moorline.testing import MemoryDisk
from moorline.topics.commands import TopicBroker
from moorline.topics.directory import News, ShardExtents, StreamDirectory
from moorline.topics.streams import LocalStreams
from moorline.wire.group import StreamsChanged


class Told:
    """All that a directory tells of other nodes' streams, in order."""

    def __init__(self, directory: StreamDirectory) -> None:
        self.words: list[tuple[str, list[tuple[int, int]]]] = []
        directory.moved.append(lambda shard_extents: self._note("moved", shard_extents))
        directory.reshaped.append(lambda shard_extents: self._note("reshaped", shard_extents))

    def _note(self, word: str, shard_extents: ShardExtents) -> None:
        self.words.append(
            (word, [(one.number, shard_extents[one][-1].end) for one in sorted(shard_extents)])
        )


class Alone:
    """No other node lives."""

    async def live_nodes(self, silent_ms: int) -> dict[str, list[str]]:  # noqa: ARG002
        return {}


@asynccontextmanager
async def lone_directory() -> AsyncIterator[StreamDirectory]:
    """Of a node that has no link yet."""
    store = StreamStore(MemoryDisk(), "n1", StreamOptions(shards=1, sync=False), lambda: 1)
    store.open()
    local = LocalStreams(store, "n1")
    yield StreamDirectory(local, Links(Config(), Alone(), "n1"))
    await local.close()
    store.close()


def _line(shard: int, first: int, *ends: int) -> list[Extent]:
    """Generations from `first` on, each of which ends there; the last one grows."""
    numbers = range(first, first + len(ends))
    starts = [0, *ends[:-1]]
    return [
        Extent(Stream("n2", shard, number), start, end, number < numbers[-1])
        for number, start, end in zip(numbers, starts, ends, strict=True)
    ]


async def test_streams_that_have_only_grown_are_told_apart_from_those_that_changed() -> None:
    """A node says many times a second how far its streams go: nobody else than a Leader that hands out single
    messages looks at its streams because of that."""
    async with lone_directory() as directory:
        told = Told(directory)
        news = News(directory._heard)
        steps = [
            _line(0, 1, 10) + _line(1, 1, 5),
            _line(0, 1, 12) + _line(1, 1, 5),
            _line(0, 1, 13) + _line(1, 1, 6, 6),
            _line(1, 1, 6, 9),
            _line(1, 2, 6, 9),
        ]
        for step in steps:
            news.hear(StreamsChanged(step))
        assert told.words == [
            ("reshaped", [(0, 10), (1, 5)]),
            ("moved", [(0, 12), (1, 5)]),
            ("moved", [(0, 13)]),
            ("reshaped", [(1, 6)]),
            ("moved", [(1, 9)]),
            ("reshaped", [(1, 9)]),
        ]
        assert directory.extents(Shard("n2", 0)) == tuple(_line(0, 1, 13))
        assert directory.extents(Shard("n2", 1)) == tuple(steps[-1])


async def test_what_a_link_begins_with_is_always_told_in_full() -> None:
    async with lone_directory() as directory:
        told = Told(directory)
        directory._seen(_line(0, 1, 10))
        directory._seen(_line(0, 1, 11))
        assert told.words == [("reshaped", [(0, 10)]), ("reshaped", [(0, 11)])]


class Looker:
    """In the place of a session: notes how far each shard went when it was told to look."""

    def __init__(self, looked: list[tuple[str, int]], name: str) -> None:
        self._looked = looked
        self._name = name
        self.delivery = self
        self.subscriptions = {1: SimpleNamespace(private=self)}

    def reshaped(self, shard_extents: ShardExtents) -> None:
        assert shard_extents

    def see(self, number: int, shard_extents: ShardExtents, starts: dict[Shard, int]) -> None:  # noqa: ARG002
        assert starts.keys() == shard_extents.keys()
        self._looked += [(self._name, extents[-1].end) for extents in shard_extents.values()]


async def test_sessions_look_at_changed_streams_in_slices_and_as_they_are_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorline.net.slices.SLICE_MS", 0)
    async with lone_directory() as directory:
        topics = TopicBroker(directory.local, Config().streams)
        context = SimpleNamespace(directory=directory)
        broker = SessionBroker(context, topics, Config().groups)  # type: ignore[arg-type]
        looked: list[tuple[str, int]] = []
        for name in "abc":
            broker._sessions[name] = Looker(looked, name)  # type: ignore[index, assignment]
        directory._seen(_line(0, 1, 10))
        assert looked == []
        while not looked:
            await asyncio.sleep(0)
        # The loop has a turn after each; what they see then is what is known by then.
        assert looked == [("a", 10)]
        del broker._sessions["b"]  # type: ignore[arg-type]
        directory._seen(_line(0, 1, 10, 20))
        while ("c", 20) not in looked or ("a", 20) not in looked:
            await asyncio.sleep(0)
        assert {name for name, _ in looked} == {"a", "c"}
        assert ("c", 10) not in looked
        broker.close()
