"""Generations that end and go: a node whose segments are small, and kept for a moment."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from tests.groups.scenes import (
    SMALL,
    Reader,
    described,
    is_done,
    is_shared_by,
    metric,
    mistakes,
    until,
)
from tests.process.nodes import NodeProcess

from moorline.client.moor import Moor

pytestmark = pytest.mark.process

GENERATION_BYTES = 16_384


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(
        tmp_path_factory.mktemp("generations") / "data",
        *(flag for flag in SMALL if "shards" not in flag),
        "--set=streams.shards=1",
        f"--set=streams.generation_bytes_max={GENERATION_BYTES}",
        f"--set=streams.retention_bytes={8 * GENERATION_BYTES}",
    ) as node:
        yield node
        assert mistakes(node) == []


async def fill(moor: Moor, topic: str, first: int, count: int) -> None:
    """A commit each: a generation is ended between commits."""
    for number in range(first, first + count):
        await moor.publish(topic, (b"%06d" % number).ljust(1_000, b"."))


def numbers(reader: Reader) -> list[int]:
    return [int(body[:6]) for body in reader.bodies]


def has_upto(reader: Reader, number: int) -> bool:
    return numbers(reader) == list(range(number + 1))


async def test_f16_a_new_stream_is_granted_without_waiting(moor: Moor, name: str) -> None:
    group = f"$shared/{name}/{name}"
    reader = Reader(await moor.subscribe(group))
    private = Reader(await moor.subscribe(name))
    await described(moor, group, is_shared_by(1))
    for number in range(60):
        await moor.publish(name, (b"%06d" % number).ljust(1_000, b"."))
        # At once, also where this one was the first of a generation: no period is waited for.
        await until(partial(has_upto, reader, number), within_s=0.9)
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
    await until(lambda: len(slow.got) >= 5 and len(private.got) >= 5)
    for reader in (slow, private):
        await reader.until(lambda one: bool(one.subscription.lost))
        reader.acks = True
        for message in list(reader.got):
            await message.ack()
    for reader in (slow, private):
        await reader.until(lambda one: 299 in numbers(one))
        lost = reader.subscription.lost
        assert {one.reason for one in lost} == {"RETENTION"}
        # What was delivered, and what is said to be lost, is all there was.
        first = reader.got[0].offset
        gone = {offset for one in lost for offset in range(one.first, one.upto)}
        got = {message.offset for message in reader.got}
        assert gone | got == set(range(first, first + 300))
        assert sum(one.upto - one.first for one in lost) == len(gone)
    await described(moor, group, is_done)
    missed = await metric(node.http, "group_messages_missed_total") - missed_before
    told = sum(one.upto - one.first for one in slow.subscription.lost)
    assert missed == told
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
    # Most of it nobody had: the members hear of what they held, the log and the figures have all.
    missed = await metric(node.http, "group_messages_missed_total") - missed_before
    assert len(set(numbers(slow))) < 300
    assert 300 - len(set(numbers(slow))) <= missed < 300
    assert 0 < sum(one.upto - one.first for one in slow.subscription.lost) <= missed


async def test_a_group_without_members_finds_its_place_gone_and_begins_behind_it(
    moor: Moor, node: NodeProcess, name: str
) -> None:
    group = f"$shared/{name}/{name}"
    await moor.group(group).create()
    before = await metric(node.http, "group_messages_missed_total")
    await fill(moor, name, 0, 300)
    while not (await moor.streams()).dropped_messages:
        await asyncio.sleep(0.01)
    reader = Reader(await moor.subscribe(group))
    await until(lambda: bool(reader.got) and numbers(reader)[-1] == 299)
    await described(moor, group, is_done)
    assert numbers(reader) == list(range(numbers(reader)[0], 300))
    missed = await metric(node.http, "group_messages_missed_total") - before
    assert missed == 300 - len(reader.got)
