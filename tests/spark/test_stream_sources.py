"""One store seen in three ways: by itself, as a folder without a server, and over a link.

Whoever reads streams asks one interface. So whatever is there, sealed or not, damaged or dropped, all of them
must give the same.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from tests.access.granted import as_before_rows, unguarded
from tests.spark.store_source import StoreStreams
from tests.spark.test_topic_planning import append, commit, seal_all

from moorline.catalog import Catalog
from moorline.config.addresses import Address
from moorline.config.settings import Streams
from moorline.core.stream import DAMAGE, RETENTION, Extent, Gap, Shard
from moorline.journal.disk import FileDisk
from moorline.journal.streams.folder import FolderStreams
from moorline.journal.streams.source import StreamSource
from moorline.journal.streams.store import StreamOptions, StreamStore
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session, each
from moorline.spark.node_streams import NodeStreams
from moorline.spark.options import Endpoint
from moorline.spark.runs import ReadGap, runs
from moorline.topics.commands import TopicBroker
from moorline.topics.stream_files import StreamFiles
from moorline.topics.streams import LocalStreams
from moorline.wire.link import Welcome
from moorline.wire.stream_file import ClusterDescribed, DescribeCluster

pytestmark = pytest.mark.slow

NODE = "node-1"
COUNT = 600
KINDS = ("store", "folder", "node")


class Found(NamedTuple):
    """What a reader got of one stream: the frames by their offsets, and what is missing."""

    frames: dict[int, bytes]
    gaps: list[Gap]


@contextlib.asynccontextmanager
async def serving(store: StreamStore) -> AsyncIterator[str]:
    streams = LocalStreams(store, NODE)
    broker = TopicBroker(streams, Streams())
    # Of the catalog it would ask only where the other nodes are: there are none.
    files = StreamFiles(streams, cast("Catalog", None))
    here: list[str] = []

    def cluster(session: Session, call: DescribeCluster) -> ClusterDescribed:
        del session
        return ClusterDescribed(call.call, NODE, [(NODE, here, True)])

    protocol = NativeProtocol(
        unguarded(broker.declared())
        | unguarded(files.declared())
        | {DescribeCluster: each(cluster)},
        lambda version, keepalive_ms: Welcome(version, NODE, keepalive_ms=keepalive_ms),
    )
    listeners = Listeners(Admission("loopback", 10, 60_000, 60_000), rights_of=as_before_rows)
    (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
    here.append(str(address))
    try:
        yield str(address)
    finally:
        broker.close()
        files.close()
        await listeners.close()
        await streams.close()


def filled(root: Path) -> StreamStore:
    """Two shards with several generations: sealed ones, one that is not, and one that grows."""
    options = StreamOptions(sync=False, shards=2, generation_bytes_max=2_000)
    clock = iter(range(1_000_000, 10**12, 1_000))
    store = StreamStore(FileDisk(root / "streams"), NODE, options, lambda: next(clock))
    store.open()
    for number in range(COUNT):
        append(store, f"topic/{number % 3}", number)
        if number % 10 == 9:
            commit(store)
        if number == COUNT * 2 // 3:
            seal_all(store)
    return store


def flip(root: Path, extent: Extent, share: float) -> None:
    """Harms one byte of a segment."""
    _, shard, generation = extent.stream
    path = root / "streams" / f"{shard:03}" / f"{generation:08}.seg"
    data = bytearray(path.read_bytes())
    data[64 + int((len(data) - 64) * share)] ^= 0xFF
    path.write_bytes(data)


@contextlib.asynccontextmanager
async def opened(kind: str, root: Path, store: StreamStore) -> AsyncIterator[StreamSource]:
    async with contextlib.AsyncExitStack() as stack:
        source: StreamSource
        if kind == "store":
            source = StoreStreams(store, NODE)
        elif kind == "folder":
            source = FolderStreams(str(root))
        else:
            address = await stack.enter_async_context(serving(store))
            source = NodeStreams(Endpoint(address))
        try:
            yield source
        finally:
            await asyncio.to_thread(source.close)


def read(source: StreamSource, extent: Extent, bytes_max: int) -> Found:
    """Block by block."""
    frames: dict[int, bytes] = {}
    gaps: list[Gap] = []
    at = extent.first
    while (found := source.read(extent.stream, at, bytes_max)) is not None:
        assert found.first == at < found.upto, "neither back nor past anything"
        if isinstance(found, Gap):
            gaps.append(found)
        else:
            edges = [*found.positions.tolist(), len(found.data)]
            assert len(found.data) <= bytes_max or len(found.positions) == 1
            for number in range(found.upto - found.first):
                frames[at + number] = found.data[edges[number] : edges[number + 1]]
        at = found.upto
    assert at == extent.end
    return Found(frames, gaps)


def decoded(source: StreamSource, extent: Extent) -> Found:
    """By its file."""
    segment = source.segment(extent.stream)
    assert segment is not None
    frames: dict[int, bytes] = {}
    gaps: list[Gap] = []
    try:
        for block in runs(segment, extent.first, extent.end, verify=True):
            if isinstance(block, ReadGap):
                gaps.append(Gap(block.first, block.upto, DAMAGE))
                continue
            columns = (block.offsets, block.places, block.lengths)
            for offset, place, length in zip(*(one.tolist() for one in columns), strict=True):
                frames[offset] = bytes(block.data[place : place + 8 + length])
    finally:
        segment.close()
    return Found(frames, gaps)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StreamStore]:
    made = filled(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_all_tell_the_same_streams(tmp_path: Path, store: StreamStore, kind: str) -> None:
    known = store.extents()
    assert len(known) > 10
    assert {extent.sealed for extent in known} == {True, False}
    async with opened(kind, tmp_path, store) as source:
        assert await asyncio.to_thread(source.extents) == [one for one in known if one.end]
        for at in (0, known[3].end, COUNT):
            since = {Shard(NODE, 0): at, Shard("nobody", 0): 0, Shard(NODE, 99): 0}
            bounds, shard_extents = await asyncio.to_thread(source.described, since)
            assert bounds == {
                Shard(NODE, number): (first, end) for number, first, end in store.bounds()
            }
            wanted = [one for one in store.extents([0]) if one.end > at]
            assert shard_extents.get(Shard(NODE, 0), []) == wanted
            assert shard_extents.keys() <= {Shard(NODE, 0)}
        for time_us in (0, 1_300_000, 10**12):
            assert await asyncio.to_thread(source.offsets_at, time_us) == {
                Shard(NODE, number): store.offset_at(number, time_us)
                for number in store.shard_numbers
            }


@pytest.mark.parametrize("kind", KINDS)
async def test_all_count_the_same_messages_that_may_match(
    tmp_path: Path, store: StreamStore, kind: str
) -> None:
    itself = StoreStreams(store, NODE)
    shards = [Shard(NODE, 0), Shard(NODE, 1)]
    async with opened(kind, tmp_path, store) as source:
        await asyncio.to_thread(source.described, {})
        for filters in (["topic/1"], ["topic/0", "topic/2"], ["nothing/+"]):
            for first, count in ((0, 1), (30, 20), (30, 150), (500, 60)):
                since, most = dict.fromkeys(shards, first), dict.fromkeys(shards, count)
                found = await asyncio.to_thread(source.count_matching, since, filters, most)
                known = itself.count_matching(since, filters, most)
                assert {shard: known[shard] for shard in found} == found
                assert found, "of each shard that goes on from there"


@pytest.mark.parametrize("bytes_max", [1, 300, 100_000])
@pytest.mark.parametrize("kind", KINDS)
async def test_all_give_the_same_frames(
    tmp_path: Path, store: StreamStore, kind: str, bytes_max: int
) -> None:
    expected = {one.stream: decoded(StoreStreams(store, NODE), one) for one in store.extents()}
    assert sum(len(one.frames) for one in expected.values()) == COUNT
    async with opened(kind, tmp_path, store) as source:
        for extent in store.extents():
            found = await asyncio.to_thread(read, source, extent, bytes_max)
            assert found == expected[extent.stream]
            assert await asyncio.to_thread(decoded, source, extent) == found


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("kind", KINDS)
async def test_all_name_the_same_damage(
    tmp_path: Path, store: StreamStore, kind: str, share: float
) -> None:
    """In a sealed stream, and in one that has ended and is not sealed yet."""
    before = {one.stream: decoded(StoreStreams(store, NODE), one) for one in store.extents()}
    is_sealed: Callable[[Extent], bool] = lambda one: (  # noqa: E731
        store.seal_of(one.stream.shard_number, one.stream.generation) is not None
    )
    ended = [one for one in store.extents([0]) if one.sealed]
    chosen = [next(one for one in ended if is_sealed(one)), ended[-1]]
    assert not is_sealed(ended[-1])
    store.close()
    for extent in chosen:
        flip(tmp_path, extent, share)
    options = StreamOptions(sync=False, shards=2, generation_bytes_max=2_000)
    again = StreamStore(FileDisk(tmp_path / "streams"), NODE, options, lambda: 10**9)
    again.open()
    try:
        async with opened(kind, tmp_path, again) as source:
            for extent in chosen:
                found = await asyncio.to_thread(read, source, extent, 100_000)
                (gap,) = found.gaps
                assert gap.reason == DAMAGE
                assert set(found.frames) == set(range(extent.first, extent.end)) - set(
                    range(gap.first, gap.upto)
                )
                assert found.frames.items() <= before[extent.stream].frames.items()
                assert await asyncio.to_thread(decoded, source, extent) == found
    finally:
        again.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_dropped_is_a_gap_up_to_what_is_left(
    tmp_path: Path, store: StreamStore, kind: str
) -> None:
    gone, left = store.extents([0])[:2]
    while store.first(0) == gone.first:
        drop = store.upkeep.next_drop(10**15)
        assert drop is not None
        drop.note()
        drop.take_effect()
        drop.remove()
    async with opened(kind, tmp_path, store) as source:
        found = await asyncio.to_thread(source.read, gone.stream, gone.first, 1_000)
        assert found == Gap(gone.first, left.first, RETENTION)
        assert await asyncio.to_thread(source.segment, gone.stream) is None
