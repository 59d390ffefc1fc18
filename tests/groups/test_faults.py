"""Members that die, hang and refuse; messages that nobody can stand."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.process.nodes import NodeProcess, clean_environment
from tests.topics.real_node import Connect
from tests.topics.scenes import (
    SHARDS,
    Reader,
    described,
    die,
    each_once,
    is_done,
    is_shared_by,
    metric,
    numbered,
    publish_all,
)
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import TopicMessage
from moorline.wire.group import GroupDescribed

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def header(message: TopicMessage, name: str) -> str:
    return dict(message.headers)[name].decode()


async def test_x1_a_member_killed_in_the_middle_loses_nothing(
    connect: Connect, node: NodeProcess, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    moor = await connect()
    member = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.groups.member_program", node.address, group, "5"),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=clean_environment(),
    )
    assert member.stdout is not None
    assert await member.stdout.readline() == b"ready\n"
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(40))
    said = [await member.stdout.readline() for _ in range(30)]
    member.kill()
    await member.wait()
    acked = {line.split()[1] for line in said if line.startswith(b"acked")}
    assert len(acked) == 5
    reader = Reader(await moor.subscribe(group))
    await until(lambda: each_once([reader], set(numbered(40)) - acked))
    await described(moor, group, is_done)
    assert each_once([reader], set(numbered(40)) - acked)
    # In each stream the oldest that was out may be why it died; the others only waited behind it.
    blamed = [message for message in reader.got if message.deliveries > 1]
    assert 1 <= len(blamed) <= SHARDS
    assert all(message.deliveries == 2 for message in blamed)


async def test_x2_of_twenty_one_is_acknowledged_and_the_next_member_gets_nineteen(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    leaver, moor = await connect(), await connect()
    taken = Reader(await leaver.subscribe(group), acks=False)
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(20))
    await until(lambda: len(taken.got) == 20)
    await taken.got[7].ack()
    await leaver.close()
    rest = [body for body in taken.bodies if body != taken.got[7].body]
    reader = Reader(await moor.subscribe(group))
    await until(lambda: each_once([reader], rest))
    await described(moor, group, is_done)
    assert each_once([reader], rest)


async def test_x14_a_member_that_never_acknowledges_loses_the_stream_that_moves(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    moor, never = await connect(), await connect()
    hung = Reader(await never.subscribe(group), acks=False)
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(40))
    await until(lambda: len(hung.got) == 40)
    good = Reader(await (await connect()).subscribe(group))
    # The deadline removes it; it begins anew, and some of its streams are the other's now.
    await until(lambda: bool(good.got))
    await described(moor, group, is_shared_by(2))
    await die(never)
    await until(lambda: set(good.bodies) == set(numbered(40)))


async def test_x21_a_rejected_message_becomes_a_dead_letter_and_the_stream_goes_on(
    moor: Moor, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    letters = Reader(await moor.subscribe(f"$dead/{name}/#"))
    subscription = await moor.subscribe(group)
    published = await moor.publish(f"{name}/x", b"poison", key="k", headers={"a": "b"})
    await moor.publish(f"{name}/x", b"good", key="k")
    deliveries = []
    good = None
    while not letters.got:
        message = await subscription.get(0.01)
        if message is None:
            continue
        if message.body == b"poison":
            deliveries.append(message.deliveries)
            # Said twice it counts once.
            await message.reject()
            await message.reject()
        else:
            good = message
            await message.ack()
    assert deliveries == [1, 2, 3, 4, 5]
    (letter,) = letters.got
    assert (letter.body, letter.key, letter.topic) == (b"poison", b"k", f"$dead/{name}/{name}/x")
    assert header(letter, "a") == "b"
    assert header(letter, "dead-reason") == "failed too often"
    assert header(letter, "dead-deliveries") == "5"
    assert header(letter, "dead-topic") == f"{name}/x"
    assert header(letter, "dead-group") == group
    assert header(letter, "dead-offset") == str(published.offset)
    assert good is not None
    await moor.publish(f"{name}/x", b"more", key="k")
    message = await subscription.get(10)
    assert message is not None
    assert message.body == b"more"
    await message.ack()
    await described(moor, group, is_done)
    assert len(letters.got) == 1


async def test_x21_whoever_published_does_not_say_where_a_letter_came_from(
    moor: Moor, name: str
) -> None:
    # It is sent back by somebody with more rights: by these headers, and in that one's name.
    group = f"$shared/{name}/{name}"
    await moor.group(group).create(deliveries_max=1)
    letters = Reader(await moor.subscribe(f"$dead/{name}/#"))
    subscription = await moor.subscribe(group)
    forged = [("dead-topic", b"others/own"), ("dead-group", b"g"), ("dead-of-mine", b"stays")]
    await moor.publish(name, b"poison", headers=forged)
    message = await subscription.get(10)
    assert message is not None
    await message.reject()
    await until(lambda: [letter.body for letter in letters.got] == [b"poison"])
    headers = letters.got[0].headers
    assert [value for key, value in headers if key == "dead-topic"] == [name.encode()]
    assert [value for key, value in headers if key == "dead-group"] == [group.encode()]
    assert ("dead-of-mine", b"stays") in headers


async def test_x21_a_dead_letter_of_a_tombstone_is_one(moor: Moor, name: str) -> None:
    letters = Reader(await moor.subscribe(f"$dead/{name}/#"))
    subscription = await moor.subscribe(f"$shared/{name}/{name}")
    await moor.publish(name, None, key="k")
    while not letters.got:
        message = await subscription.get(0.01)
        if message is not None:
            await message.reject()
    assert (letters.got[0].is_tombstone, letters.got[0].key) == (True, b"k")


async def test_x21_a_message_that_kills_its_members_becomes_a_dead_letter(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}"
    moor = await connect()
    await moor.group(group).create(deliveries_max=3)
    letters = Reader(await moor.subscribe(f"$dead/{name}/#"))
    for body in (b"before", b"poison", b"behind"):
        await moor.publish(name, body)
    deliveries = []
    for _ in range(3):
        victim = await connect()
        async for message in victim.subscribe(group):
            if message.body == b"poison":
                deliveries.append(message.deliveries)
                await victim.echo(b"")
                await die(victim)
                break
            await message.ack()
    assert deliveries == [1, 2, 3]
    reader = Reader(await moor.subscribe(group))
    await until(lambda: reader.bodies == [b"behind"])
    await until(lambda: [letter.body for letter in letters.got] == [b"poison"])
    assert header(letters.got[0], "dead-deliveries") == "3"
    await described(moor, group, is_done)


async def test_x21_a_dead_letter_of_the_longest_topic_is_kept_too(moor: Moor, name: str) -> None:
    topic = f"{name}/" + "x" * (1_023 - len(name))
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create(deliveries_max=1)
    letters = Reader(await moor.subscribe(f"$dead/{name}/#"))
    subscription = await moor.subscribe(group)
    await moor.publish(topic, b"poison", headers={"big": "h" * 16_000})
    message = await subscription.get(10)
    assert message is not None
    await message.reject()
    await until(lambda: [letter.body for letter in letters.got] == [b"poison"])
    assert header(letters.got[0], "dead-topic") == topic
    await described(moor, group, is_done)


async def test_x23_what_a_removed_member_held_goes_to_the_others(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    moor = await connect()
    kicked = Reader(await (await connect()).subscribe(group), acks=False)
    found = await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(20))
    await until(lambda: len(kicked.got) == 20)
    with pytest.raises(moorline.NotFound):
        await moor.group(group).kick("nobody")
    await moor.group(group).kick(found.members[0].member)
    await until(lambda: kicked.ended == "KICKED")
    other = Reader(await moor.subscribe(group))
    await until(lambda: each_once([other], numbered(20)))
    # It may come again, as a new member.
    await described(moor, group, is_done)
    back = Reader(await (await connect()).subscribe(group))
    await described(moor, group, is_shared_by(2))
    await publish_all(moor, name, numbered(40, first=20))
    await until(lambda: each_once([other, back], numbered(60)))


async def test_x24_one_unacknowledged_message_stalls_nothing_within_the_window(
    connect: Connect, node: NodeProcess, name: str
) -> None:
    group = f"$shared/{name}/{name}"
    moor = await connect()
    subscription = await moor.subscribe(group, window=8)
    full = await metric(node.http, "topic_windows_full")
    # One shard has them all, by the topic; the first is never acknowledged.
    await moor.publish_all([moorline.record(name, body) for body in numbered(100)])
    first = await subscription.get(10)
    assert first is not None
    for body in numbered(99, first=1):
        message = await subscription.get(10)
        assert message is not None
        assert message.body == body
        await message.ack()
    await described(moor, group, lambda found: lag(found) == 1)
    assert await metric(node.http, "topic_windows_full") == full
    # With as many as the window unacknowledged it waits, and says so.
    await moor.publish_all([moorline.record(name, body) for body in numbered(20, first=100)])
    held = [await subscription.get(10) for _ in range(7)]
    assert await subscription.get(0.05) is None
    assert await metric(node.http, "topic_windows_full") == full + 1
    for message in [first, *held]:
        assert message is not None
        await message.ack()
    rest = [await subscription.get(10) for _ in range(8)]
    assert [one.body for one in rest if one is not None] == numbered(8, first=107)


def lag(found: GroupDescribed) -> int:
    return sum(cursor.lag for cursor in found.cursors)


async def test_a_member_that_leaves_before_it_has_a_leader_leaves_no_ghost(
    connect: Connect, name: str
) -> None:
    groups = [f"$shared/{name}-{number}/{name}/#" for number in range(10)]
    unsubscribed, died, closed, moor = [await connect() for _ in range(4)]
    for group in groups:
        # Answered when the group is known; its Leader is looked for from then on.
        await asyncio.gather(*(one.subscribe(group) for one in (unsubscribed, died, closed)))
        again = await unsubscribed.subscribe(group)
        await again.close()
    await asyncio.gather(die(died), closed.close())
    for group in groups:
        await moor.subscribe(group)
        # Sooner than a ghost would go by itself, which is after a minute.
        await described(moor, group, is_shared_by(1))
