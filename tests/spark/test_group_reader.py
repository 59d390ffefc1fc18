"""A query as one member of a shared group, beside live consumers: each message once while both run."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from tests.process.nodes import NodeProcess
from tests.spark.conftest import SOURCES
from tests.topics.scenes import Reader, described, is_done, is_shared_by, numbered, publish_all
from tests.waiting import until

import moorline
from moorline.core.stream import Extent, Stream
from moorline.errors import ConfigError, SubscriptionEnded
from moorline.spark import group_member
from moorline.spark.group_member import ALL, GroupMember, Taken
from moorline.spark.group_reader import existing, stream_reader
from moorline.spark.node_streams import NodeStreams
from moorline.spark.options import Endpoint

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

SHARDS = 4
FLAGS = (
    f"--set=streams.shards={SHARDS}",
    "--set=streams.sync=process",
    "--set=streams.generation_bytes_max=65536",
    "--set=groups.ping_ms=200",
    "--set=groups.lease_ms=20000",
    "--set=groups.rebalance_ms=20",
    "--set=groups.commit_ms=10",
)
WITHIN_S = 120


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("shared") / "data", *FLAGS) as one:
        yield one


def begin(
    spark: SparkSession, node: NodeProcess, group: str, folder: Path, **options: Any
) -> StreamingQuery:
    trigger = options.pop("trigger", {"availableNow": True})
    frame = (
        spark.readStream.format("moorline")
        .options(address=node.address, group=group, **options)
        .load()
    )
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "state")).trigger(**trigger).start()


def bodies_in(spark: SparkSession, folder: Path) -> list[bytes]:
    return [bytes(row.value) for row in spark.read.parquet(str(folder / "out")).collect()]


def rows_of(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)


# --- with Spark -----------------------------------------------------------------------------------


async def test_alone_until_it_has_caught_up(
    spark: SparkSession, shared: NodeProcess, tmp_path: Path
) -> None:
    group = "$shared/alone/alone/#"
    bodies = [body + bytes(400) for body in numbered(1_200)]
    async with moorline.connect(shared.address) as moor:
        await moor.group(group).create()
        await publish_all(moor, "elsewhere", bodies[:50])
        await publish_all(moor, "alone", bodies[:800])
        async with asyncio.timeout(WITHIN_S):  # a generation comes behind the other
            while len((await moor.streams()).streams) < 2 * SHARDS:
                await publish_all(moor, "elsewhere", bodies[:50])
        await publish_all(moor, "alone", bodies[800:1_000])

        async def run(**options: Any) -> StreamingQuery:
            query = begin(spark, shared, group, tmp_path, **options)
            await asyncio.to_thread(query.awaitTermination)
            return query

        query = await run(maxOffsetsPerTrigger="400", includeHeaders="true")
        assert Counter(bodies_in(spark, tmp_path)) == Counter(bodies[:1_000])
        assert max(one.numInputRows for one in query.recentProgress) <= 400
        source = json.loads(query.recentProgress[-1].json)["sources"][0]
        assert source["latestOffset"]["waiting"] == 0
        found = await described(moor, group, lambda one: is_done(one) and not one.members)
        assert sum(cursor.failing for cursor in found.cursors) == 0
        # The same checkpoint: nothing is new, then only what is new.
        assert rows_of(await run()) == 0
        await publish_all(moor, "alone", bodies[1_000:])
        assert rows_of(await run()) == 200
        assert Counter(bodies_in(spark, tmp_path)) == Counter(bodies)


async def test_beside_a_live_consumer(
    spark: SparkSession, shared: NodeProcess, tmp_path: Path
) -> None:
    group = "$shared/beside/beside/#"
    bodies = numbered(900)
    async with (
        moorline.connect(shared.address) as moor,
        moorline.connect(shared.address) as other,
    ):
        await moor.group(group).create()
        query = begin(spark, shared, group, tmp_path, trigger={"processingTime": "0 seconds"})

        async def has(condition: Callable[[], bool]) -> None:
            def met() -> bool:
                assert query.isActive, query.exception()
                return condition()

            await until(met, within_s=WITHIN_S)

        await publish_all(moor, "beside", bodies[:300])
        await has(lambda: rows_of(query) == 300)
        # Another member comes: the query gives half of its streams up, whatever batch it is at.
        publishing = asyncio.create_task(_trickle(moor, "beside", bodies[300:600]))
        reader = Reader(await other.subscribe(group))
        await described(moor, group, is_shared_by(2))
        await publishing
        await has(lambda: rows_of(query) + len(reader.got) >= 600)
        assert reader.got
        assert rows_of(query) > 300
        # It goes: the query gets them back.
        await reader.stop()
        await reader.subscription.close()
        await described(moor, group, is_shared_by(1))
        await publish_all(moor, "beside", bodies[600:])
        await has(lambda: rows_of(query) + len(reader.got) >= 900)
        await described(moor, group, is_done)
        await asyncio.to_thread(query.stop)
        await described(moor, group, lambda one: not one.members)
        found = Counter(bodies_in(spark, tmp_path)) + Counter(reader.bodies)
        assert found == Counter(bodies), "each once, to one of both"


async def _trickle(moor: moorline.Moor, topic: str, bodies: list[bytes]) -> None:
    for start in range(0, len(bodies), 10):
        await publish_all(moor, topic, bodies[start : start + 10])
        await asyncio.sleep(0.02)


@pytest.mark.long
async def test_a_killed_driver_loses_nothing(
    spark: SparkSession, shared: NodeProcess, tmp_path: Path
) -> None:
    group = "$shared/killed/killed/#"
    bodies = numbered(600)
    async with (
        moorline.connect(shared.address) as moor,
        moorline.connect(shared.address) as other,
    ):
        await moor.group(group).create()
        await publish_all(moor, "killed", bodies)
        await asyncio.to_thread(drive, shared, group, tmp_path, 1)
        state = tmp_path / "state"
        assert (state / "offsets" / "1").exists(), "the batch was planned"
        assert not (state / "commits" / "1").exists(), "and is not complete"
        # Its streams are another's, with all that is not known to be complete.
        before = bodies_in(spark, tmp_path)
        reader = Reader(await other.subscribe(group))
        await described(moor, group, is_done)
        assert set(before) | set(reader.bodies) == set(bodies)
        assert max(Counter(reader.bodies).values()) == 1
        assert not set(before) & set(reader.bodies), "the first batch was acknowledged"
        await reader.stop()
        await reader.subscription.close()
        # From the checkpoint: the batch that was planned is the same one, and behind it only what is new.
        new = numbered(50, first=600)
        await publish_all(moor, "killed", new)
        await asyncio.to_thread(drive, shared, group, tmp_path, -1)
        after = Counter(bodies_in(spark, tmp_path))
        planned = json.loads((state / "offsets" / "1").read_text().splitlines()[2])["ranges"]
        replayed = sum(upto - first for several in planned.values() for first, upto in several)
        assert max(after.values()) == 1
        assert len(after) == len(before) + replayed + len(new)
        assert set(new) <= set(after)
        await described(moor, group, is_done)


def drive(node: NodeProcess, group: str, folder: Path, batch: int) -> None:
    tests = Path(__file__).parents[2]
    arguments = [node.address, group, str(folder), str(batch)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.group_driver", *arguments],
        env=_environment(tests),
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (ended.returncode == 0) == (batch < 0), ended.stderr[-3_000:]


def _environment(tests: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{tests}"}


# --- the member, without Spark --------------------------------------------------------------------


class Scene:
    """A member, and the nodes that it takes from."""

    def __init__(self, node: NodeProcess, group: str) -> None:
        self.member = GroupMember(Endpoint(node.address), group, "now")
        self.streams = NodeStreams(Endpoint(node.address))
        self.member.join()

    def close(self) -> None:
        self.member.close()
        self.streams.close()

    def take(self, count: int = ALL) -> Taken:
        ends = {one.stream: one.end for one in self.streams.extents()}
        return self.member.take(ends, count)

    async def holds(self, count: int) -> None:
        await until(lambda: len(self.member.held()) == count)


def total(taken: Taken) -> int:
    return sum(upto - first for several in taken.values() for first, upto in several)


async def test_a_lost_connection_repeats_only_what_is_not_complete(shared: NodeProcess) -> None:
    group = "$shared/lost/lost/#"
    async with moorline.connect(shared.address) as moor:
        await moor.group(group).create()
        await publish_all(moor, "lost", numbered(100))
        scene = Scene(shared, group)
        try:
            await scene.holds(SHARDS)
            first = scene.take(40)
            assert total(first) == 40
            second = scene.take()
            assert total(second) == 60
            _cut(scene.member)
            # The first is complete when the connection is gone already, the second never is.
            scene.member.finish(first)
            assert scene.take() == {}, "nothing is held yet"
            await scene.holds(SHARDS)
            again = scene.take()
            assert {stream: sorted(several) for stream, several in again.items()} == {
                stream: sorted(several) for stream, several in second.items()
            }
            scene.member.finish(again)
            await described(moor, group, is_done)
        finally:
            scene.close()


def _cut(member: GroupMember) -> None:
    async def cut() -> None:
        assert member._caller is not None
        member._caller.abort()
        await member._caller.gone

    member.run(cut())


@pytest.mark.parametrize("before", [0, 100])
@pytest.mark.parametrize("kept_ms", [0, 600_000])
async def test_a_group_that_was_sought_back_is_read_again(
    shared: NodeProcess, monkeypatch: pytest.MonkeyPatch, kept_ms: int, before: int
) -> None:
    """Also while the last batch may still come again because its acknowledgement was lost."""
    monkeypatch.setattr(group_member, "SPARK_COMPLETE_KEPT_MS", kept_ms)
    name = f"sought{kept_ms}-{before}"
    group = f"$shared/{name}/{name}/#"
    async with moorline.connect(shared.address) as moor:
        await publish_all(moor, name, numbered(before))
        await moor.group(group).create()
        await publish_all(moor, name, numbered(100))
        scene = Scene(shared, group)
        try:
            await scene.holds(SHARDS)
            for count in (50, 50):
                scene.member.finish(scene.take(count))
            await described(moor, group, is_done)
            feeds = set(scene.member._held)
            await moor.group(group).seek("beginning")
            await until(lambda: not feeds & set(scene.member._held))
            await scene.holds(SHARDS)
            assert total(scene.take()) >= before + 100
        finally:
            scene.close()


async def test_every_stream_has_its_share_of_a_limit(shared: NodeProcess) -> None:
    group = "$shared/limit/limit/#"
    async with moorline.connect(shared.address) as moor:
        await moor.group(group).create()
        await publish_all(moor, "limit", numbered(200))
        scene = Scene(shared, group)
        try:
            await scene.holds(SHARDS)
            assert len(scene.take(SHARDS * 2)) == SHARDS
            streams: set[Stream] = set()
            for _ in range(2 * SHARDS):
                taken = scene.take(1)
                assert total(taken) == 1
                streams.update(taken)
            assert len(streams) == SHARDS, "none is always the last"
        finally:
            scene.close()


async def test_a_member_that_is_removed_says_so(shared: NodeProcess) -> None:
    group = "$shared/removed/removed/#"
    async with moorline.connect(shared.address) as moor:
        await moor.group(group).create()
        scene = Scene(shared, group)
        try:
            await scene.holds(SHARDS)
            await moor.group(group).delete()
            await until(lambda: not scene.member.held())
            with pytest.raises(SubscriptionEnded, match="DELETED"):
                scene.member.join()
        finally:
            scene.close()


def test_what_is_gone_of_a_batch_is_named() -> None:
    here, gone = Stream("a", 0, 2), Stream("a", 0, 1)
    found, gaps = existing({gone: [(0, 5)], here: [(5, 8), (9, 20)]}, [Extent(here, 7, 18, False)])
    assert [(one.stream, one.first, one.upto) for one in found] == [(here, 7, 8), (here, 9, 18)]
    assert [(one.first, one.upto) for one in gaps] == [(0, 5), (5, 7), (18, 20)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group": "$queue/g/orders/#"}, r"\$queue group hands out single messages"),
        ({"group": "orders/#"}, "names no group"),
        ({"group": "$shared//x"}, "a group's name has"),
        ({"group": "$shared/g/x", "topics": "x"}, "unknown option 'topics'"),
        ({"group": "$shared/g/x", "startingOffsets": '{"a/1": 2}'}, "give earliest or latest"),
        ({"group": "$shared/g/x", "maxOffsetsPerTrigger": "0"}, "a whole number above 0"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        stream_reader(options, StructType())
