"""What planning asks of nodes and folders: how far shards go, and only the streams behind a place."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.spark.proxy import Door
from tests.spark.publishing import Message
from tests.spark.test_topic_planning import append, commit, seal_all
from tests.topics.test_pages import NODE, STREAMS, serving

from moorline.catalog import EmbeddedPostgres
from moorline.core.stream import Extent, Shard, Stream
from moorline.journal.disk import FileDisk
from moorline.journal.streams.folder import FolderStreams
from moorline.journal.streams.source import DescribedShards, extents_by_shard
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.spark.node_link import Links
from moorline.spark.node_streams import NodeStreams
from moorline.spark.options import Endpoint
from moorline.testing.memory_disk import MemoryDisk


def behind(extents: list[Extent], since: dict[Shard, int]) -> DescribedShards:
    """What is to be told, worked out from all there is."""
    shard_extents = extents_by_shard(extents)
    bounds = {
        shard: (several[0].first, several[-1].end) for shard, several in shard_extents.items()
    }
    wanted = [one for one in extents if one.end > since.get(one.stream.shard, one.end)]
    return DescribedShards(bounds, extents_by_shard(wanted))


def places(extents: list[Extent]) -> Iterator[dict[Shard, int]]:
    """None, all, and every edge of every stream."""
    yield {}
    yield {one.stream.shard: 0 for one in extents}
    yield {one.stream.shard: one.end for one in extents}
    for one in extents:
        for at in {max(0, one.first - 1), one.first, one.end - 1, one.end}:
            yield {one.stream.shard: at}


def without_empty(told: DescribedShards) -> DescribedShards:
    return DescribedShards(
        told.bounds, {shard: found for shard, found in told.shard_extents.items() if found}
    )


@pytest.mark.parametrize(
    ("layout", "home"),
    [("node=first shards=1 version=2", "first"), ("shards=1 version=2", "second")],
)
def test_a_folder_is_of_a_home_whatever_its_node_is_called(
    tmp_path: Path, layout: str, home: str
) -> None:
    """As its layout says, or the note of the node that runs in it."""
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "layout").write_text(layout)
    (tmp_path / "node.json").write_text('{"node": "renamed", "home": "second"}')
    assert FolderStreams(str(tmp_path)).home == home


def test_a_folder_tells_what_is_behind_a_place_and_opens_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StreamOptions(sync=False, shards=2, generation_bytes_max=2_000)
    store = StreamStore(FileDisk(tmp_path / "streams"), "node-1", options, lambda: 1)
    store.open()
    for number in range(300):
        append(store, "topic", number)
        if number % 10 == 9:
            commit(store)
        if number == 200:
            seal_all(store)
    store.close()
    streams = FolderStreams(str(tmp_path))
    extents = streams.extents()
    assert len(extents) > 5
    for since in places(extents):
        assert without_empty(streams.described(since)) == behind(extents, since)
    opened: list[int] = []
    read = streams._head

    def counted(shard: int, generation: int) -> object:
        opened.append(generation)
        return read(shard, generation)

    monkeypatch.setattr(streams, "_head", counted)
    streams.described({shard: end for shard, (_, end) in streams.described({}).bounds.items()})
    assert len(opened) == 8, "twice, of two shards, the oldest and the newest"


@pytest.mark.slow
async def test_more_streams_than_an_answer_holds_come_in_several() -> None:
    store = StreamStore(MemoryDisk(), NODE, StreamOptions(shards=2, sync=False), lambda: 1)
    store.open()
    for offset in range(1, STREAMS):
        store.skip_to(0, offset)
    async with serving(store) as (_, address):

        def ask() -> None:
            streams = NodeStreams(Endpoint(str(address)))
            try:
                for first in (0, STREAMS - 10):
                    since = {Shard(NODE, 0): first, Shard(NODE, 1): 0}
                    asked = streams._shards_of(NODE, (str(address),), since)
                    shards, found = streams._links.run(asked)
                    assert shards == [(0, 0, STREAMS - 1), (1, 0, 0)]
                    assert found == [one for one in store.extents([0]) if one.end > first]
            finally:
                streams.close()

        await asyncio.to_thread(ask)


@pytest.mark.process
@pytest.mark.slow
def test_a_node_tells_what_is_behind_a_place(node: NodeProcess, published: list[Message]) -> None:
    assert published
    streams, links = NodeStreams(Endpoint(node.address)), Links(Endpoint(node.address))
    try:
        extents = [
            Extent(Stream(one.node, one.shard, one.generation), one.first, one.end, one.is_sealed)
            for one in links.streams((node.address,))
        ]
        assert streams.extents() == [one for one in extents if one.end]
        for since in list(places(extents))[:20]:
            assert streams.described(since) == behind(extents, since)
        assert (
            streams.described({Shard("nobody", 0): 0, Shard("node-1", 999): 0}).shard_extents == {}
        )
    finally:
        streams.close()
        links.close()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nodes_are_asked_side_by_side(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        postgres = EmbeddedPostgres(tmp_path / "catalog")
        runner.run(postgres.__aenter__())
        flags = (f"--catalog={postgres.dsn}", "--set=streams.shards=2")
        try:
            with (
                NodeProcess(tmp_path / "one", "--node=one", *flags) as one,
                NodeProcess(tmp_path / "two", "--node=two", *flags) as two,
            ):
                _ask_both(one, two)
        finally:
            runner.run(postgres.__aexit__(None, None, None))


def _ask_both(one: NodeProcess, two: NodeProcess) -> None:
    streams, doors = NodeStreams(Endpoint(one.address)), [Door(one.address), Door(two.address)]
    try:
        plain = streams.described({})
        assert set(plain.bounds) == {
            Shard(home, number) for home in ("one", "two") for number in (0, 1)
        }
        # The words to either node wait until there are words to the other: in turn they would wait for ever.
        both = threading.Barrier(2)

        def meet() -> None:
            both.wait(60)

        streams._known = {"one": (doors[0].address,), "two": (doors[1].address,)}
        for door in doors:
            door.after(1, meet, towards_node=True)
        assert streams.described({}) == plain
        assert streams.silent() == []
        assert [door.accepted for door in doors] == [1, 1]
    finally:
        streams.close()
        for door in doors:
            door.close()
