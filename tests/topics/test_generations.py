"""Generations that end and go: a node whose segments are small, and kept for a moment."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.real_node import Connect
from tests.topics.scenes import (
    SMALL,
    Reader,
    described,
    is_done,
    is_shared_by,
    metric,
    mistakes,
    without,
)
from tests.waiting import until

from moorline.client.moor import Moor

pytestmark = pytest.mark.process

GENERATION_BYTES = 16_384
RETENTION_BYTES = 8 * GENERATION_BYTES


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(
        tmp_path_factory.mktemp("generations") / "data",
        *without(SMALL, "streams.shards", "groups.lock_ms", "groups.revoke_ms"),
        "--set=streams.shards=1",
        # What a reader has in hand stays there, however busy the machine is.
        "--set=groups.lock_ms=60000",
        "--set=groups.revoke_ms=60000",
        f"--set=streams.generation_bytes_max={GENERATION_BYTES}",
        f"--set=streams.retention_bytes={RETENTION_BYTES}",
    ) as node:
        yield node
        assert mistakes(node) == []


async def fill(moor: Moor, topic: str, first: int, count: int) -> None:
    """A commit each: a generation is ended between commits."""
    for number in range(first, first + count):
        await moor.publish(topic, (b"%06d" % number).ljust(1_000, b"."))


async def until_retention_is_done(moor: Moor) -> None:
    """Generations go one after the other, each by a turn of its own."""

    async def kept_bytes() -> int:
        return sum(one.size_bytes for one in (await moor.streams()).streams)

    while await kept_bytes() > RETENTION_BYTES:
        await asyncio.sleep(0.02)


def numbers(reader: Reader) -> list[int]:
    return [int(body[:6]) for body in reader.bodies]


def has_upto(reader: Reader, number: int) -> bool:
    return numbers(reader) == list(range(number + 1))


def check_told(readers: list[Reader], missed: float | None, count: int = 300) -> None:
    """What was acknowledged and what was told to be lost is all there was, and nothing was both."""
    lost = [one for reader in readers for one in reader.subscription.lost]
    assert {one.reason for one in lost} == {"RETENTION"}
    told = Counter(offset for one in lost for offset in range(one.first, one.upto))
    got = {message.offset for reader in readers for message in reader.got}
    assert set(told.values()) == {1}, "told twice"
    assert not got & told.keys(), "acknowledged, and told to be lost"
    assert len(got | told.keys()) == count
    assert missed in (None, told.total())


async def test_f16_a_new_stream_is_granted_without_waiting(moor: Moor, name: str) -> None:
    group = f"$shared/{name}/{name}"
    reader = Reader(await moor.subscribe(group))
    private = Reader(await moor.subscribe(name))
    await described(moor, group, is_shared_by(1))
    for number in range(60):
        await moor.publish(name, (b"%06d" % number).ljust(1_000, b"."))
        # At once, also where this one was the first of a generation: no period is waited for.
        await until(partial(has_upto, reader, number), within_s=10)
    await until(lambda: numbers(private) == list(range(60)))
    generations = {message.stream.generation for message in reader.got if message.stream}
    assert len(generations) >= 3
    await described(moor, group, is_done)


async def test_x15_what_retention_took_is_told_and_the_group_goes_on(
    moor: Moor, node: NodeProcess, name: str
) -> None:
    group = f"$shared/{name}/{name}"
    slow = Reader(await moor.subscribe(group, window=5), acks=False)
    private = Reader(await moor.subscribe(name, window=5), acks=False)
    await described(moor, group, is_shared_by(1))
    missed_before = await metric(node.http, "group_messages_missed_total")
    await fill(moor, name, 0, 300)
    # Each has something in hand, which holds it up and is not lost; of the rest it is told at once.
    for reader in (slow, private):
        await reader.until(lambda one: bool(one.got and one.subscription.lost))
        reader.acks = True
        for message in list(reader.got):
            await message.ack()
    for reader in (slow, private):
        await reader.until(lambda one: 299 in numbers(one))
    found = await described(moor, group, is_done)
    missed = await metric(node.http, "group_messages_missed_total") - missed_before
    check_told([slow], missed)
    check_told([private], missed=None)
    assert sum(cursor.lost for cursor in found.cursors) == missed
    assert "messages were gone before the group had read them" in node.errors
    assert await metric(node.http, "stream_messages_dropped_total") > 0


async def test_x15_in_a_queue_group_what_retention_took_is_told_too(
    moor: Moor, node: NodeProcess, name: str
) -> None:
    group = f"$queue/{name}/{name}"
    slow = Reader(await moor.subscribe(group, window=5), acks=False)
    await described(moor, group, lambda found: len(found.members) == 1)
    missed_before = await metric(node.http, "group_messages_missed_total")
    await fill(moor, name, 0, 300)
    await until(lambda: len(slow.got) >= 5 and bool(slow.subscription.lost))
    slow.acks = True
    for message in list(slow.got):
        await message.ack()
    await until(lambda: 299 in numbers(slow))
    await described(moor, group, is_done)
    missed = await metric(node.http, "group_messages_missed_total") - missed_before
    check_told([slow], missed)


async def test_a_group_without_members_finds_its_place_gone_and_begins_behind_it(
    moor: Moor, node: NodeProcess, name: str
) -> None:
    group = f"$shared/{name}/{name}"
    await moor.group(group).create()
    before = await metric(node.http, "group_messages_missed_total")
    await fill(moor, name, 0, 300)
    await until_retention_is_done(moor)
    # Nobody leads it: what waits is counted, and so is what is gone.
    found = await described(moor, group, lambda one: sum(cursor.lost for cursor in one.cursors) > 0)
    assert found.group.leader == ""
    assert sum(cursor.lag + cursor.lost for cursor in found.cursors) == 300
    reader = Reader(await moor.subscribe(group))
    await until(lambda: bool(reader.got) and numbers(reader)[-1] == 299)
    await described(moor, group, is_done)
    assert numbers(reader) == list(range(numbers(reader)[0], 300))
    missed = await metric(node.http, "group_messages_missed_total") - before
    assert missed == 300 - len(reader.got)
    check_told([reader], missed)


@pytest.mark.parametrize("is_durable", [False, True])
async def test_without_acknowledgements_what_came_of_a_stream_that_is_over_is_not_thrown_away(
    connect: Connect, name: str, *, is_durable: bool
) -> None:
    """All of it is delivered, and so it is over at once: its messages wait here for their reader."""
    moor = await connect()
    await fill(moor, name, 0, 60)
    if is_durable:
        await moor.session(name)
    subscription = await moor.subscribe(name, start="beginning", qos=0)
    await moor.echo(b"")  # the node says what it has to say before anybody reads
    reader = Reader(subscription)
    await until(lambda: sorted(numbers(reader)) == list(range(60)))


async def test_streams_that_have_nothing_for_a_reader_are_passed(moor: Moor, name: str) -> None:
    await fill(moor, f"{name}/wanted", 0, 1)
    await fill(moor, f"{name}/other", 0, 60)
    await fill(moor, f"{name}/wanted", 1, 1)
    reader = Reader(await moor.subscribe(f"{name}/wanted", start="beginning"))
    await until(lambda: numbers(reader) == [0, 1])
    await fill(moor, f"{name}/wanted", 2, 1)
    await until(lambda: numbers(reader) == [0, 1, 2])
