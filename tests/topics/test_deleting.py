"""Readers that are at work while a topic is deleted."""

import asyncio

import pytest
from tests.topics.scenes import Reader, described

from moorline.client.moor import Moor

pytestmark = pytest.mark.process


@pytest.mark.parametrize("deliveries_max", [1, 5])
async def test_a_message_that_failed_comes_not_again_and_is_no_dead_letter(
    moor: Moor, name: str, deliveries_max: int
) -> None:
    name = f"{name}x{deliveries_max}"
    group = f"$queue/{name}/{name}/#"
    await moor.group(group).create(start="beginning", deliveries_max=deliveries_max)
    await moor.publish(f"{name}/a", b"fails")
    member = Reader(await moor.subscribe(group), acks=False)
    await member.until(lambda reader: len(reader.got) == 1)
    assert (await moor.delete_topic(f"{name}/a")).messages == 1
    await member.got[0].reject()
    await moor.publish(f"{name}/b", b"later")
    await member.until(lambda reader: len(reader.got) == 2)
    assert member.bodies == [b"fails", b"later"]
    await member.got[1].ack()
    await described(moor, group, lambda found: sum(one.lag for one in found.cursors) == 0)
    assert await moor.topics(f"$dead/{name}/#") == []
    await member.stop()


async def test_subscriptions_stay_and_nothing_is_told_as_lost(moor: Moor, name: str) -> None:
    early = Reader(await moor.subscribe(f"{name}/#"))
    for number in range(20):
        await moor.publish(f"{name}/{number % 2}", b"%d" % number)
    await moor.delete_topic(f"{name}/0")
    await moor.publish(f"{name}/0", b"again")
    await early.has([*(b"%d" % number for number in range(20)), b"again"])
    late = Reader(await moor.subscribe(f"{name}/0", start="beginning"))
    await late.has([b"again"])
    assert [early.subscription.lost, late.subscription.lost] == [[], []]
    for reader in (early, late):
        await reader.stop()


async def test_two_deletions_at_once_are_both_done(moor: Moor, name: str) -> None:
    for topic in ("a", "b", "c"):
        await moor.publish(f"{name}/{topic}", b"1", retain=True)
    told = await asyncio.gather(*(moor.delete_topic(f"{name}/{one}") for one in ("a", "b")))
    assert [one.messages for one in told] == [1, 1]
    assert await moor.topics(f"{name}/#") == [(f"{name}/c", 1)]
