"""F21: groups that share single messages (`$queue/…`), with one real node."""

from collections import Counter

import pytest
from tests.topics.real_node import Connect
from tests.topics.scenes import (
    Reader,
    all_there,
    described,
    die,
    each_once,
    is_done,
    numbered,
    publish_all,
)
from tests.waiting import until

import moorline
from moorline.client.moor import Moor

pytestmark = pytest.mark.process


async def test_f21_members_share_the_messages_of_one_topic(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}"
    moor = await connect()
    readers = [Reader(await (await connect()).subscribe(group, window=4)) for _ in range(3)]
    await described(moor, group, lambda found: len(found.members) == 3)
    await moor.publish_all([moorline.record(name, body) for body in numbered(300)])
    await until(lambda: all_there(readers, numbered(300)))
    await described(moor, group, is_done)
    assert each_once(readers, numbered(300))
    assert all(reader.got for reader in readers)


async def test_f21_single_messages_go_to_all_members_alike(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}"
    moor = await connect()
    readers = [Reader(await (await connect()).subscribe(group)) for _ in range(3)]
    await described(moor, group, lambda found: len(found.members) == 3)
    for number, body in enumerate(numbered(60)):
        await moor.publish(name, body)
        await until(lambda done=number + 1: sum(len(one.got) for one in readers) == done)  # type: ignore[misc]
    assert min(len(reader.got) for reader in readers) >= 15


async def test_f21_at_most_a_window_is_in_flight(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}/#"
    moor = await connect()
    slow = Reader(await (await connect()).subscribe(group, window=3), acks=False)
    await described(moor, group, lambda found: len(found.members) == 1)
    await publish_all(moor, name, numbered(30))
    await until(lambda: len(slow.got) == 3)
    assert sum(cursor.lag for cursor in (await moor.group(group).info()).cursors) == 30
    assert len(slow.got) == 3
    for message in slow.got[:2]:
        await message.ack()
    await until(lambda: len(slow.got) == 5)
    fast = Reader(await (await connect()).subscribe(group, window=10))
    await until(lambda: len(fast.got) == 25)


async def test_f21_a_rejected_message_goes_to_another_member_at_once(
    connect: Connect, name: str
) -> None:
    group = f"$queue/{name}/{name}"
    moor = await connect()
    picky, other = await connect(), await connect()
    refused = await picky.subscribe(group)
    taken = await other.subscribe(group)
    await described(moor, group, lambda found: len(found.members) == 2)
    for number in range(20):
        await moor.publish(name, b"%d" % number)
        if (message := await refused.get(0.02)) is None:
            message = await taken.get(10)
            assert message is not None
            await message.ack()
            continue
        await message.reject()
        # Sooner than what a silent member holds is given to others: that is a minute.
        again = await taken.get(10)
        assert again is not None
        assert (again.body, again.deliveries) == (message.body, 2)
        await again.ack()
    await described(moor, group, is_done)


async def test_f21_alone_it_gets_what_it_rejects_again_until_it_is_dead(
    moor: Moor, name: str
) -> None:
    group = f"$queue/{name}/{name}"
    await moor.group(group).create(deliveries_max=2)
    letters = Reader(await moor.subscribe(f"$dead/{name}/#"))
    subscription = await moor.subscribe(group)
    await moor.publish(name, b"poison")
    deliveries = []
    for _ in range(2):
        message = await subscription.get(10)
        assert message is not None
        deliveries.append(message.deliveries)
        await message.reject()
    assert deliveries == [1, 2]
    await until(lambda: [letter.body for letter in letters.got] == [b"poison"])
    await described(moor, group, is_done)


async def test_f21_what_is_not_done_in_time_goes_to_another(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}"
    moor = await connect()
    hung = Reader(await (await connect()).subscribe(group), acks=False)
    await described(moor, group, lambda found: len(found.members) == 1)
    await moor.publish(name, b"late")
    await until(lambda: len(hung.got) == 1)
    other = Reader(await (await connect()).subscribe(group))
    await until(lambda: other.bodies == [b"late"])
    assert other.got[0].deliveries == 2
    # Too late: it has been done by somebody else.
    await hung.got[0].ack()
    await hung.got[0].reject()
    await described(moor, group, is_done)
    await moor.publish_all([moorline.record(name, body) for body in numbered(20)])
    await until(lambda: all_there([hung, other], numbered(20)))


async def test_f21_what_a_dead_member_held_goes_to_the_others(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}/#"
    moor, victim = await connect(), await connect()
    held = Reader(await victim.subscribe(group, window=10), acks=False)
    await described(moor, group, lambda found: len(found.members) == 1)
    await publish_all(moor, name, numbered(30))
    await until(lambda: len(held.got) == 10)
    await held.got[0].ack()
    await victim.echo(b"")
    await die(victim)
    acked = held.got[0].body
    reader = Reader(await moor.subscribe(group))
    rest = set(numbered(30)) - {acked}
    await until(lambda: all_there([reader], rest))
    await described(moor, group, is_done)
    assert each_once([reader], rest)


async def test_f21_members_come_and_go_none_missing_none_twice(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}/#"
    moor = await connect()
    readers = [Reader(await (await connect()).subscribe(group, window=5)) for _ in range(2)]
    await described(moor, group, lambda found: len(found.members) == 2)
    await publish_all(moor, name, numbered(500))
    readers += [Reader(await (await connect()).subscribe(group, window=5)) for _ in range(2)]
    await publish_all(moor, name, numbered(500, first=500))
    await readers[0].subscription.close()
    await until(lambda: all_there(readers, numbered(1_000)))
    await described(moor, group, is_done)
    found = Counter(body for reader in readers for body in reader.bodies)
    assert [body for body, count in found.items() if count > 1] == []


async def test_a_queue_group_is_moved_and_deleted_alive(connect: Connect, name: str) -> None:
    group = f"$queue/{name}/{name}"
    moor = await connect()
    readers = [Reader(await (await connect()).subscribe(group)) for _ in range(2)]
    await described(moor, group, lambda found: len(found.members) == 2)
    await moor.publish_all([moorline.record(name, body) for body in numbered(50)])
    await until(lambda: each_once(readers, numbered(50)))
    await described(moor, group, is_done)
    await moor.group(group).seek("beginning")
    await until(lambda: each_once(readers, numbered(50) * 2))
    await moor.group(group).delete()
    await until(lambda: [reader.ended for reader in readers] == ["DELETED"] * 2)
