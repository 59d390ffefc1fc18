"""Groups of whole streams, with one real node: who gets what, once, while members come and go."""

import asyncio
from collections import Counter, defaultdict
from functools import partial

import pytest
from tests.topics.real_node import Connect
from tests.topics.scenes import (
    SHARDS,
    Reader,
    all_there,
    described,
    each_once,
    is_done,
    is_shared_by,
    numbered,
    publish_all,
)
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.wire.group import GroupDescribed

pytestmark = pytest.mark.process


async def joined(connect: Connect, group: str, count: int) -> list[Reader]:
    """Members that have their streams."""
    readers = [Reader(await (await connect()).subscribe(group)) for _ in range(count)]
    await described(await connect(), group, is_shared_by(count))
    return readers


async def test_f1_one_member_two_topics_before_and_after_a_pause(moor: Moor, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    reader = Reader(await moor.subscribe(group))
    for topic in ("a", "b"):
        await moor.publish(f"{name}/{topic}", topic.encode())
    await until(lambda: each_once([reader], [b"a", b"b"]))
    await described(moor, group, is_done)
    for topic in ("a", "b"):
        await moor.publish(f"{name}/{topic}", topic.encode() * 2)
    await until(lambda: each_once([reader], [b"a", b"b", b"aa", b"bb"]))


async def test_f2_declared_before_its_first_member_it_keeps_what_is_published(
    moor: Moor, name: str
) -> None:
    group = moor.group(f"$shared/{name}/{name}/#")
    assert await group.create()
    assert not await group.create()
    await publish_all(moor, name, numbered(50))
    reader = Reader(await moor.subscribe(group.name))
    await until(lambda: each_once([reader], numbered(50)))


async def test_f3_not_declared_it_begins_at_its_creation(moor: Moor, name: str) -> None:
    await publish_all(moor, name, numbered(20))
    reader = Reader(await moor.subscribe(f"$shared/{name}/{name}/#"))
    await publish_all(moor, name, numbered(20, first=20))
    await until(lambda: each_once([reader], numbered(20, first=20)))
    from_the_beginning = Reader(
        await moor.subscribe(f"$shared/{name}-2/{name}/#", start="beginning")
    )
    await until(lambda: each_once([from_the_beginning], numbered(40)))


async def test_f4_a_deleted_group_tells_its_members_and_leaves_nothing(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    readers = await joined(connect, group, 2)
    moor = await connect()
    await moor.group(group).delete()
    await until(lambda: [reader.ended for reader in readers] == ["DELETED"] * 2)
    assert group not in {facts.name for facts in await moor.groups()}
    with pytest.raises(moorline.NotFound):
        await moor.group(group).info()
    with pytest.raises(moorline.NotFound):
        await moor.group(group).delete()
    # Made anew it knows nothing of what it was.
    await publish_all(moor, name, numbered(10))
    again = Reader(await moor.subscribe(group))
    await publish_all(moor, name, numbered(10, first=10))
    await until(lambda: each_once([again], numbered(10, first=10)))


async def test_f5_two_members_get_each_message_once(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    readers = await joined(connect, group, 2)
    moor = await connect()
    await publish_all(moor, name, numbered(200))
    await until(lambda: all_there(readers, numbered(200)))
    await described(moor, group, is_done)
    assert each_once(readers, numbered(200))
    assert all(reader.got for reader in readers)
    # $share is another way to write $shared.
    await moor.subscribe(f"$share/{name}/{name}/#")
    await described(moor, group, is_shared_by(3))


async def test_f6_a_member_that_joins_late_gets_a_stream(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    (first,) = await joined(connect, group, 1)
    moor = await connect()
    await publish_all(moor, name, numbered(40))
    await until(lambda: len(first.got) == 40)
    late = Reader(await (await connect()).subscribe(group))
    await described(moor, group, is_shared_by(2))
    await publish_all(moor, name, numbered(40, first=40))
    await until(lambda: each_once([first, late], numbered(80)))
    assert late.got


async def test_f7_members_join_under_load_none_missing_none_twice(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    readers = await joined(connect, group, 1)
    moor = await connect()
    await publish_all(moor, name, numbered(100))

    async def join() -> None:
        readers.append(Reader(await (await connect()).subscribe(group)))

    async def trickle() -> None:
        for body in numbered(100, first=100):
            await moor.publish(f"{name}/{int(body) % 16}", body)

    await asyncio.gather(join(), join(), trickle())
    await until(lambda: all_there(readers, numbered(200)))
    await described(moor, group, lambda found: is_done(found) and is_shared_by(3)(found))
    assert each_once(readers, numbered(200))


async def test_f8_a_member_unsubscribes_under_load_none_missing_none_twice(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    readers = await joined(connect, group, 3)
    moor = await connect()

    async def trickle() -> None:
        for body in numbered(200):
            await moor.publish(f"{name}/{int(body) % 16}", body)

    async def leave() -> None:
        await until(lambda: len(readers[0].got) > 10)
        await readers[0].subscription.close()

    await asyncio.gather(trickle(), leave())
    await until(lambda: all_there(readers, numbered(200)))
    await described(moor, group, lambda found: is_done(found) and is_shared_by(2)(found))
    assert each_once(readers, numbered(200))


async def test_f10_a_clean_end_hands_over_before_any_timeout(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    moor, leaver = await connect(), await connect()
    held = await leaver.subscribe(group)
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(40))
    await until(lambda: bool(held._waiting))
    stays = Reader(await moor.subscribe(group))
    await leaver.close()
    # Sooner than the streams of a member that is only silent would go to others: that is a minute.
    await until(lambda: each_once([stays], numbered(40)))
    assert {message.deliveries for message in stays.got} == {1}


async def test_f13_subscribing_again_changes_nothing(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    member, moor = await connect(), await connect()
    reader = Reader(await member.subscribe(group))
    before = await described(moor, group, is_shared_by(1))
    assert await member.subscribe(group, start="beginning") is reader.subscription
    after = await moor.group(group).info()
    assert [one.borrower for one in after.members] == [one.borrower for one in before.members]
    await publish_all(moor, name, numbered(30))
    await until(lambda: each_once([reader], numbered(30)))
    assert (await moor.group(group).info()).group.epoch == before.group.epoch


async def test_f17_more_members_than_streams_idle_and_take_over(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    readers = await joined(connect, group, SHARDS + 3)
    moor = await connect()
    found = await moor.group(group).info()
    assert sorted(member.streams for member in found.members) == [0] * 3 + [1] * SHARDS
    await publish_all(moor, name, numbered(60), topics=60)
    await until(lambda: each_once(readers, numbered(60)))
    busy = [reader for reader in readers if reader.got]
    assert len(busy) == SHARDS
    for reader in busy[:3]:
        await reader.subscription.close()
    await described(moor, group, is_shared_by(SHARDS))
    await publish_all(moor, name, numbered(60, first=60), topics=60)
    await until(lambda: each_once(readers, numbered(120)))


async def test_f18_one_publisher_spreads_over_members_by_key_and_keys_keep_their_order(
    connect: Connect, name: str
) -> None:
    readers = await joined(connect, f"$shared/{name}/{name}", SHARDS)
    moor = await connect()
    await moor.publish_all(
        [moorline.record(name, b"%d" % number, key=f"k{number % 32}") for number in range(400)]
    )
    await until(lambda: each_once(readers, [b"%d" % number for number in range(400)]))
    assert all(reader.got for reader in readers)
    owners: dict[bytes, set[int]] = defaultdict(set)
    for place, reader in enumerate(readers):
        orders: dict[bytes, list[int]] = defaultdict(list)
        for message in reader.got:
            assert message.key is not None
            owners[message.key].add(place)
            orders[message.key].append(int(message.body))
        assert all(order == sorted(order) for order in orders.values())
    assert all(len(places) == 1 for places in owners.values())


async def test_f19_durable_and_plain_members_are_one_group(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    durable, plain, moor = await connect(), await connect(), await connect()
    assert await durable.session(f"{name}-session") == []
    readers = [Reader(await durable.subscribe(group)), Reader(await plain.subscribe(group))]
    found = await described(moor, group, is_shared_by(2))
    assert f"{name}-session" in {member.member for member in found.members}
    await publish_all(moor, name, numbered(100))
    await until(lambda: each_once(readers, numbered(100)))
    assert all(reader.got for reader in readers)


async def test_f20_an_empty_group_idles_out_and_resumes_at_the_right_place(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    (first,) = await joined(connect, group, 1)
    moor = await connect()
    await publish_all(moor, name, numbered(30))
    await until(lambda: len(first.got) == 30)
    await first.subscription.close()
    led = await described(moor, group, lambda found: not found.members)

    def is_led(found: GroupDescribed) -> bool:
        return found.group.leader != ""

    await described(moor, group, lambda found: not is_led(found))
    await publish_all(moor, name, numbered(30, first=30))
    assert sum(cursor.lag for cursor in (await moor.group(group).info()).cursors) >= 30
    second = Reader(await moor.subscribe(group))
    await until(lambda: each_once([second], numbered(30, first=30)))
    found = await described(moor, group, is_led)
    assert found.group.epoch > led.group.epoch


async def test_m3_unacknowledged_messages_go_elsewhere_when_the_session_ends(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    leaver, moor = await connect(), await connect()
    taken = Reader(await leaver.subscribe(group), acks=False)
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(20))
    await until(lambda: len(taken.got) == 20)
    other = Reader(await moor.subscribe(group))
    await leaver.close()
    await until(lambda: each_once([other], numbered(20)))


async def test_m4_no_retained_messages_on_a_shared_subscribe(moor: Moor, name: str) -> None:
    await moor.publish(f"{name}/kept", b"kept", retain=True)
    shared = Reader(await moor.subscribe(f"$shared/{name}/{name}/#"))
    plain = Reader(await moor.subscribe(f"{name}/#"))
    await until(lambda: plain.bodies == [b"kept"])
    assert plain.got[0].is_retained
    await moor.publish(f"{name}/kept", b"new")
    await until(lambda: plain.bodies == [b"kept", b"new"])
    await until(lambda: shared.bodies == [b"new"])


async def test_m5_no_local_on_a_shared_subscription_is_refused(moor: Moor, name: str) -> None:
    with pytest.raises(moorline.BadTopic, match="no_local"):
        await moor._subscriptions.subscribe(
            f"$shared/{name}/{name}/#", window=1, start="now", qos=1, no_local=True
        )
    assert f"$shared/{name}/{name}/#" not in {facts.name for facts in await moor.groups()}


async def test_m6_a_second_subscribe_adds_no_membership(moor: Moor, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    first = await moor.subscribe(group)
    assert await moor.subscribe(group) is first
    assert await moor.subscribe(f"$share/{name}/{name}/#") is first
    assert len((await described(moor, group, is_shared_by(1))).members) == 1
    await first.close()
    await described(moor, group, lambda found: not found.members)


@pytest.mark.parametrize(
    "bad", ["$shared/", "$shared//a", "$shared/a+b/c", "$shared/#/c", "$shared/g", "$shared/g/"]
)
async def test_m7_a_bad_share_name_is_refused(moor: Moor, bad: str) -> None:
    with pytest.raises(moorline.BadTopic):
        await moor.subscribe(bad)
    await moor.describe()


async def test_m8_the_delivered_qos_is_the_lower_one(moor: Moor, name: str) -> None:
    zero = Reader(await moor.subscribe(f"$shared/{name}0/{name}/#", qos=0, window=1), acks=False)
    one = Reader(await moor.subscribe(f"$shared/{name}1/{name}/#", qos=1))
    await moor.publish(f"{name}/a", b"0", qos=0)
    await moor.publish(f"{name}/a", b"1", qos=1)
    await until(lambda: len(zero.got) == len(one.got) == 2)
    assert [message.qos for message in zero.got] == [0, 0]
    assert [message.qos for message in one.got] == [0, 1]
    # Nobody acknowledges qos 0; the group goes on all the same.
    await described(moor, f"$shared/{name}0/{name}/#", is_done)


async def test_m9_a_client_in_both_kinds_of_subscription_gets_both(moor: Moor, name: str) -> None:
    shared = Reader(await moor.subscribe(f"$shared/{name}/{name}/#"))
    plain = Reader(await moor.subscribe(f"{name}/#"))
    await publish_all(moor, name, numbered(20))
    await until(lambda: each_once([shared], numbered(20)) and each_once([plain], numbered(20)))


async def test_unsubscribed_and_subscribed_again_at_once_it_is_a_member(
    moor: Moor, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    first = Reader(await moor.subscribe(group), acks=False)
    await publish_all(moor, name, numbered(10))
    await until(lambda: len(first.got) == 10)
    # What the application has taken is still its own: the first membership is not over yet.
    await first.subscription.close()
    second = Reader(await moor.subscribe(group))
    for message in first.got:
        await message.ack()
    await publish_all(moor, name, numbered(10, first=10))
    await until(lambda: each_once([second], numbered(10, first=10)))
    await described(moor, group, lambda found: is_shared_by(1)(found) and is_done(found))


async def test_a_live_group_is_moved_to_the_beginning_an_offset_and_a_time(
    connect: Connect, name: str
) -> None:
    group = f"$shared/{name}/{name}"
    moor = await connect()
    readers = [Reader(await (await connect()).subscribe(group)) for _ in range(2)]
    await described(moor, group, is_shared_by(2))
    places = [await moor.publish(name, body) for body in numbered(10)]
    await until(lambda: each_once(readers, numbered(10)))
    await described(moor, group, is_done)
    owner = next(reader for reader in readers if reader.got)
    sixth = owner.got[5].time

    for start, first in (("beginning", 0), (places[7].offset, 7), (sixth, 5)):
        for reader in readers:
            reader.got.clear()
        await moor.group(group).seek(start)
        await until(partial(all_there, readers, numbered(10 - first, first=first)))
        await described(moor, group, is_done)
        assert each_once(readers, numbered(10 - first, first=first)), start
    await moor.group(group).seek("now")
    await moor.publish(name, b"more")
    await until(lambda: all_there(readers, [b"more"]))
    assert Counter(body for reader in readers for body in reader.bodies)[b"more"] == 1


async def test_a_subscribe_that_is_given_up_leaves_no_member(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    hasty, moor = await connect(), await connect()
    asked = asyncio.ensure_future(hasty.subscribe(group)._make())
    await asyncio.sleep(0)  # it is on its way
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    reader = Reader(await moor.subscribe(group))
    await described(moor, group, is_shared_by(1))
    await publish_all(moor, name, numbered(20))
    await until(lambda: each_once([reader], numbered(20)))
    # One that is in use is not ended by a second one that is given up.
    kept = Reader(await hasty.subscribe(f"{name}/#"))
    asked = asyncio.ensure_future(hasty.subscribe(f"{name}/#")._make())
    await asyncio.sleep(0)
    asked.cancel()
    await hasty.echo(b"")
    await publish_all(moor, name, numbered(20, first=20))
    await until(lambda: each_once([kept], numbered(20, first=20)))


async def test_a_group_without_members_is_moved_and_deleted(moor: Moor, name: str) -> None:
    group = moor.group(f"$shared/{name}/{name}/#")
    await publish_all(moor, name, numbered(20))
    await group.create()
    assert is_done(await group.info())
    await group.seek("beginning")
    reader = Reader(await moor.subscribe(group.name))
    await until(lambda: each_once([reader], numbered(20)))
    await reader.subscription.close()
    await group.delete()
    with pytest.raises(moorline.NotFound):
        await group.seek("now")
