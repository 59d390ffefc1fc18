"""What is gone before it was acknowledged is told, by real nodes: to whom, how much, and after whatever."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.scenes import SMALL, WITHIN_S, Reader, described, is_done, mistakes, without
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Subscription
from moorline.limits import FEED_LOSSES_MAX
from moorline.wire.group import GroupDescribed

pytestmark = pytest.mark.process

GENERATION_BYTES = 8_192

FLAGS = (
    *without(SMALL, "streams.shards", "groups.lock_ms", "groups.revoke_ms"),
    "--node=n1",
    "--set=streams.shards=1",
    "--set=groups.lock_ms=60000",
    "--set=groups.revoke_ms=60000",
    f"--set=streams.generation_bytes_max={GENERATION_BYTES}",
)
DROPPING = (*FLAGS, f"--set=streams.retention_bytes={3 * GENERATION_BYTES}")


async def fill(moor: Moor, first: int, count: int, topic: str = "a") -> None:
    """A commit each: a generation is ended between commits."""
    for number in range(first, first + count):
        await moor.publish(topic, (b"%06d" % number).ljust(500, b"."))


async def kept_from(moor: Moor) -> int:
    """The first message that is still there."""
    return min(stream.first for stream in (await moor.streams()).streams)


async def dropped_upto(moor: Moor, offset: int) -> None:
    end = asyncio.get_running_loop().time() + WITHIN_S
    while await kept_from(moor) < offset:
        assert asyncio.get_running_loop().time() < end, "retention did not take it"
        await asyncio.sleep(0.02)


def told(subscriptions: Iterable[Subscription], reason: str = "RETENTION") -> set[int]:
    """The offsets that were told to be lost, each of them once."""
    lost = [one for subscription in subscriptions for one in subscription.lost]
    assert {one.reason for one in lost} <= {reason}
    found = Counter(offset for one in lost for offset in range(one.first, one.upto))
    assert set(found.values()) <= {1}, "told twice"
    return set(found)


def offsets(reader: Reader) -> set[int]:
    return {message.offset for message in reader.got}


def lost_by(found: GroupDescribed) -> int:
    return sum(cursor.lost for cursor in found.cursors)


async def test_a_queue_of_three_is_told_of_all_that_it_did_not_acknowledge(tmp_path: Path) -> None:
    group = "$queue/g/a"
    with NodeProcess(tmp_path / "data", *DROPPING) as node:
        moors = [await moorline.connect(node.address, reconnect=False) for _ in range(3)]
        readers = [Reader(await one.subscribe(group, window=4), acks=False) for one in moors]
        await described(moors[0], group, lambda found: len(found.members) == 3)
        await fill(moors[0], 0, 150)
        # Each has four in hand, for as long as it likes; nobody has room, and of the rest they hear at once.
        await until(lambda: all(len(reader.got) == 4 for reader in readers))
        await dropped_upto(moors[0], 60)
        await until(lambda: len(told(reader.subscription for reader in readers)) >= 48)
        for reader in readers:
            reader.acks = True
            for message in list(reader.got):
                await message.ack()
        found = await described(moors[0], group, is_done)
        acked = set().union(*(offsets(reader) for reader in readers))
        lost = told(reader.subscription for reader in readers)
        assert set(range(12)) <= acked, "what was in hand is not lost"
        assert not acked & lost
        assert acked | lost == set(range(150))
        assert lost_by(found) == len(lost)
        for one in moors:
            await one.close()
        assert mistakes(node) == []


@pytest.mark.parametrize(("mode", "end"), [("shared", "stop"), ("queue", "kill")])
async def test_what_went_while_nobody_was_there_is_told_after_a_restart(
    tmp_path: Path, mode: str, end: str
) -> None:
    group = f"${mode}/g/a"
    with NodeProcess(tmp_path / "data", *DROPPING) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        reader = Reader(await moor.subscribe(group))
        await fill(moor, 0, 10)
        await until(lambda: len(reader.got) == 10)
        await described(moor, group, is_done)
        await moor.close()
        moor = await moorline.connect(node.address, reconnect=False)
        await described(moor, group, lambda found: found.group.leader == "")
        # Whole generations come and go, and nobody leads the group.
        await fill(moor, 10, 100)
        await dropped_upto(moor, 50)
        found = await moor.group(group).info()
        assert sum(cursor.lag + cursor.lost for cursor in found.cursors) == 100
        await moor.close()
        node.stop() if end == "stop" else node.kill()
    with NodeProcess(tmp_path / "data", *DROPPING) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        reader = Reader(await moor.subscribe(group))
        found = await described(moor, group, is_done)
        await until(lambda: len(offsets(reader) | told([reader.subscription])) == 100)
        lost = told([reader.subscription])
        assert lost == set(range(10, 110)) - offsets(reader)
        assert len(lost) == lost_by(found) >= 40
        await moor.close()
        # It was told once; the count stays, whoever leads.
        moor = await moorline.connect(node.address, reconnect=False)
        found = await described(moor, group, lambda one: one.group.leader == "")
        assert lost_by(found) == len(lost)
        reader = Reader(await moor.subscribe(group))
        await fill(moor, 110, 1)
        await until(lambda: bool(reader.got))
        assert told([reader.subscription]) == set()
        assert mistakes(node) == []
        await moor.close()


async def test_a_durable_session_is_told_what_went_while_it_was_away(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", *DROPPING) as node:
        durable = await moorline.connect(node.address, reconnect=False)
        await durable.session("reader")
        reader = Reader(await durable.subscribe("a"), acks=False)
        moor = await moorline.connect(node.address, reconnect=False)
        await fill(moor, 0, 10)
        await until(lambda: len(reader.got) == 10)
        for message in reader.got[::2]:
            await message.ack()
        await durable.close()
        await fill(moor, 10, 100)
        await dropped_upto(moor, 50)
        durable = await moorline.connect(node.address, reconnect=False)
        (resumed,) = await durable.session("reader")
        again = Reader(resumed)
        left = set(range(110)) - {0, 2, 4, 6, 8}
        await until(lambda: len(offsets(again) | told([resumed])) == len(left))
        assert told([resumed]) == left - offsets(again)
        await durable.close()
        # And only once.
        durable = await moorline.connect(node.address, reconnect=False)
        (resumed,) = await durable.session("reader")
        last = Reader(resumed)
        await fill(moor, 110, 1)
        await until(lambda: bool(last.got))
        assert told([resumed]) == set()
        assert mistakes(node) == []
        await durable.close()
        await moor.close()


def spoil(data: Path, text: bytes) -> None:
    """Turns one byte of a stored message."""
    (segment,) = [path for path in data.glob("streams/000/*.seg") if text in path.read_bytes()]
    content = bytearray(segment.read_bytes())
    content[content.index(text)] ^= 0xFF
    segment.write_bytes(content)


async def test_what_is_damaged_is_told_too(tmp_path: Path) -> None:
    data, groups = tmp_path / "data", ("$shared/g/a", "$queue/g/a")
    with NodeProcess(data, *FLAGS) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await fill(moor, 0, 20)
            for group in groups:
                await moor.group(group).create(start="beginning")
        node.stop()
    spoil(data, b"000004.")
    with NodeProcess(data, *FLAGS) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            for filter_text in ("a", *groups):
                reader = Reader(await moor.subscribe(filter_text, start="beginning"))
                await until(lambda: len(reader.got) == 19 and bool(reader.subscription.lost))  # noqa: B023
                lost = told([reader.subscription], "DAMAGE")
                assert lost == {4} == set(range(20)) - offsets(reader)
            for group in groups:
                assert lost_by(await described(moor, group, is_done)) == 1
        assert node.errors.count("reason=DAMAGE") == 2, "the log says so for each group"


async def test_a_stream_with_very_many_holes_is_read_to_its_end(tmp_path: Path) -> None:
    """More than one lease may report: a member is told of all of them, once, and gets the rest."""
    data, count = tmp_path / "data", 2 * FEED_LOSSES_MAX + 300
    flags = without(FLAGS, "streams.generation_bytes_max")
    with NodeProcess(data, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await moor.publish_all([moorline.record("a", b"<%06d>" % one) for one in range(count)])
    (path,) = (data / "streams" / "000").glob("*.seg")
    damaged = bytearray(path.read_bytes())
    for number in range(0, count, 2):
        damaged[damaged.index(b"<%06d>" % number)] ^= 1
    path.write_bytes(bytes(damaged))
    with NodeProcess(data, *flags) as node:
        moor = await moorline.connect(node.address, reconnect=False)
        reader = Reader(await moor.subscribe("$shared/g/a", start="beginning"))
        alone = Reader(await moor.subscribe("a", start="beginning"))
        found = await described(moor, "$shared/g/a", is_done)
        for one in (reader, alone):
            await until(lambda one=one: len(offsets(one)) == count // 2)  # type: ignore[misc]
            assert offsets(one) == set(range(1, count, 2))
            assert told([one.subscription], "DAMAGE") == set(range(0, count, 2))
        assert lost_by(found) == count // 2
        await moor.close()
        assert [line for line in mistakes(node) if "damaged or gone" not in line] == []
