"""Publishing and plain subscriptions, with one real node: starts, what is retained, what is refused."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.topics.real_node import Connect
from tests.topics.scenes import Reader, described, each_once, is_done, numbered, publish_all
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Batch
from moorline.core.frames.frame import TOMBSTONE
from moorline.limits import PUBLISH_BATCH_BYTES, PUBLISH_BATCHES_AT_ONCE
from moorline.wire.topic import AckMessages, GiveBack, Record, RejectMessage

pytestmark = pytest.mark.process


async def test_a_reader_begins_now_at_the_beginning_at_an_offset_or_at_a_time(
    connect: Connect, name: str
) -> None:
    moor = await connect()
    places = [await moor.publish(name, body) for body in numbered(10)]
    beginning = Reader(await moor.subscribe(name, start="beginning"))
    await until(lambda: beginning.bodies == numbered(10))
    starts: list[tuple[str | int | datetime, int]] = [
        (places[4].offset, 4),
        (beginning.got[6].time, 6),
        (beginning.got[0].time - timedelta(days=1), 0),
        (datetime.now(UTC) + timedelta(days=1), 10),
        (places[9].offset + 1_000, 10),
        ("now", 10),
    ]
    for number, (start, first) in enumerate(starts, 10):
        other = await connect()
        reader = Reader(await other.subscribe(name, start=start))
        await moor.publish(name, b"%06d" % number)
        # Those of the other rounds are there too; what begins now has only its own.
        await reader.has(numbered(number + 1)[number if first == 10 else first :])
        assert reader.bodies == sorted(reader.bodies)


async def test_what_is_published_comes_as_it_was(moor: Moor, name: str) -> None:
    reader = Reader(await moor.subscribe(f"{name}/+"))
    headers = [("a", b"1"), ("b", b"\x00\xff"), ("a", b"2")]
    await moor.publish(f"{name}/x", b"\x00body", key=b"\x01key", headers=headers)
    await moor.publish(f"{name}/ümläut ☃", b"", headers={"Größe": "groß"})
    await until(lambda: len(reader.got) == 2)
    first = next(message for message in reader.got if message.body)
    other = next(message for message in reader.got if not message.body)
    assert (first.topic, first.key, first.headers) == (f"{name}/x", b"\x01key", headers)
    assert (other.topic, other.key) == (f"{name}/ümläut ☃", None)
    assert other.headers == [("Größe", "groß".encode())]
    assert abs(first.time - datetime.now(UTC)) < timedelta(minutes=1)
    assert first.deliveries == 1
    assert not first.is_retained


BODY = b"x" * (PUBLISH_BATCH_BYTES // 16)
AT_ONCE = 16 * PUBLISH_BATCHES_AT_ONCE
"""Of these, as many as may be in memory."""


async def test_records_come_from_any_iterable_and_few_of_them_are_in_memory(
    moor: Moor, name: str
) -> None:
    count, looks = 3 * AT_ONCE, 0

    async def stored() -> int:
        return sum(found for _, found in await moor.topics(name))

    async def slowly() -> AsyncIterator[Record]:
        nonlocal looks
        for number in range(count):
            if number % (AT_ONCE // 2) == 0:
                looks += 1
                assert await stored() >= number - AT_ONCE
            yield moorline.record(name, BODY)

    assert sum(one.stored for one in await moor.publish_all(slowly())) == count
    assert (looks, await stored()) == (6, count)
    lazy = (moorline.record(name, b"%d" % number) for number in range(count))
    assert sum(one.stored for one in await moor.publish_all(lazy)) == count
    assert await stored() == 2 * count


async def test_a_tombstone_is_not_an_empty_message(moor: Moor, name: str) -> None:
    reader = Reader(await moor.subscribe(name))
    await moor.publish(name, b"", key="k")
    await moor.publish(name, None, key="k", headers={"a": "b"}, producer=name, sequence=1)
    await moor.publish_all([moorline.record(name, None, key="k")])
    await until(lambda: len(reader.got) == 3)
    assert [(one.body, one.is_tombstone) for one in reader.got] == [
        (b"", False),
        (b"", True),
        (b"", True),
    ]
    assert (reader.got[1].key, reader.got[1].headers) == (b"k", [("a", b"b")])
    assert "a tombstone" in repr(reader.got[1])
    forged = Record(name, b"body", b"k", None, 0, TOMBSTONE)
    with pytest.raises(moorline.BadTopic, match="has a body"):
        await moor.publish_all([forged])
    # One that is retained takes back what was.
    await moor.publish(f"{name}/r", b"on", retain=True)
    await moor.publish(f"{name}/r", None, retain=True)
    await moor.publish(f"{name}/other", b"still", retain=True)
    later = Reader(await moor.subscribe(f"{name}/#"))
    await until(lambda: later.bodies == [b"still"])


async def test_a_publish_that_is_tried_again_is_stored_once(connect: Connect, name: str) -> None:
    first, second = await connect(), await connect()
    reader = Reader(await first.subscribe(f"{name}/#"))
    records = [
        moorline.record(f"{name}/{number % 7}", body) for number, body in enumerate(numbered(50))
    ]
    assert (
        sum(one.stored for one in await first.publish_all(records, producer=name, sequence=1)) == 50
    )
    (again,) = await second.publish_all(records, producer=name, sequence=1)
    assert (again.stored, again.duplicates) == (0, 50)
    (more,) = await second.publish_all(
        [*records, moorline.record(f"{name}/0", b"51")], producer=name, sequence=1
    )
    assert (more.stored, more.duplicates) == (1, 50)
    # Another producer's numbers are its own; so are those of nobody.
    assert (await first.publish(f"{name}/0", b"x", producer=f"{name}-2", sequence=1)).stored == 1
    assert (await first.publish(f"{name}/0", b"x")).stored == 1
    await until(lambda: each_once([reader], [*numbered(50), b"51", b"x", b"x"]))


async def test_the_first_number_of_a_producer_may_be_zero(moor: Moor, name: str) -> None:
    first = await moor.publish(name, b"0", producer=name, sequence=0)
    again = await moor.publish(name, b"0", producer=name, sequence=0)
    assert (first.stored, again.stored, again.duplicates) == (1, 0, 1)


async def test_a_message_lives_as_long_as_its_publisher_said(moor: Moor, name: str) -> None:
    group = f"$shared/{name}/{name}"
    await moor.group(group).create()
    await moor.publish(name, b"short", ttl_s=1)
    await moor.publish(name, b"long", ttl_s=4_000_000_000)
    await moor.publish(name, b"for ever")
    early = Reader(await moor.subscribe(name, start="beginning"))
    await until(lambda: early.bodies == [b"short", b"long", b"for ever"])
    over = early.got[0].time + timedelta(seconds=1)
    await until(lambda: datetime.now(UTC) > over)
    reader = Reader(await moor.subscribe(group))
    await until(lambda: reader.bodies == [b"long", b"for ever"])
    # What has expired is done for a group.
    await described(moor, group, is_done)


async def test_the_last_retained_message_comes_first_until_it_is_removed(
    connect: Connect, name: str
) -> None:
    moor = await connect()
    for topic in ("a", "b"):
        await moor.publish(f"{name}/{topic}", b"old", retain=True)
        await moor.publish(f"{name}/{topic}", topic.encode(), retain=True, headers={"h": topic})
        await moor.publish(f"{name}/{topic}", b"not retained")
    other = await connect()
    reader = Reader(await other.subscribe(f"{name}/+"))
    await until(lambda: each_once([reader], [b"a", b"b"]))
    assert all(message.is_retained for message in reader.got)
    assert {message.headers[0] for message in reader.got} == {("h", b"a"), ("h", b"b")}
    for message in reader.got:
        await message.ack()  # there is nothing to say of it
        await message.reject()
    await moor.publish(f"{name}/a", b"", retain=True)
    await until(lambda: len(reader.got) == 3)  # to those who read it is a message like any
    third = await connect()
    late = Reader(await third.subscribe(f"{name}/+"))
    await until(lambda: late.bodies == [b"b"])
    # One that has expired is not kept any more.
    await moor.publish(f"{name}/a", b"brief", retain=True, ttl_s=1)
    await until(lambda: b"brief" in late.bodies)
    over = late.got[-1].time + timedelta(seconds=1)
    await until(lambda: datetime.now(UTC) > over)
    fourth = await connect()
    last = Reader(await fourth.subscribe(f"{name}/+"))
    await until(lambda: bool(last.bodies))
    assert last.bodies == [b"b"]


async def test_many_retained_messages_come_to_a_reader_that_takes_its_time(
    connect: Connect, name: str
) -> None:
    moor = await connect()
    body = b"r" * 20_000
    await moor.publish_all(
        [moorline.record(f"{name}/{number}", body, retain=True) for number in range(500)]
    )
    reader = Reader(await (await connect()).subscribe(f"{name}/#"))
    await until(lambda: len(reader.got) == 500)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "a/+",
        "a/#",
        "$shared/g/x",
        "$queue/g/x",
        "a\0b",
        "x" * 1_025,
        "/".join("x" * 33),
        "\ud800",
    ],
)
async def test_a_bad_topic_is_refused_and_the_connection_stays(moor: Moor, topic: str) -> None:
    with pytest.raises(moorline.BadTopic):
        await moor.publish(topic, b"x")
    await moor.echo(b"still there")


@pytest.mark.parametrize(
    "filter_text",
    ["", "a/#/b", "a/b#", "a/b+", "x" * 1_025, "a\0b", "\ud800", "$shared/g/$shared/h/x"],
)
async def test_a_bad_filter_is_refused_and_the_connection_stays(
    moor: Moor, filter_text: str
) -> None:
    with pytest.raises(moorline.BadTopic):
        await moor.subscribe(filter_text)
    await moor.echo(b"still there")


@pytest.mark.parametrize(
    "start",
    [
        "",
        "later",
        "time:",
        "time:-1",
        "offset:x",
        -1,
        "offset:99999999999999999999",
        "x" * 100,
        1 << 64,
    ],
)
async def test_a_bad_start_is_refused_and_the_connection_stays(
    moor: Moor, name: str, start: str | int
) -> None:
    with pytest.raises(moorline.BadStart):
        await moor.subscribe(f"{name}/#", start=start)
    with pytest.raises(moorline.BadStart):
        await moor.subscribe(f"$shared/{name}/{name}/#", start=start)
    if not isinstance(start, str) or len(start) <= 64:
        with pytest.raises(moorline.BadStart):
            await moor.group(f"$shared/{name}/{name}/#").create(start=start)
    await moor.echo(b"still there")


async def test_what_is_too_large_is_refused_and_the_connection_stays(moor: Moor, name: str) -> None:
    reader = Reader(await moor.subscribe(f"{name}/#"))
    with pytest.raises(moorline.TooLarge):
        await moor.publish(f"{name}/a", b"x" * (256 * 1_024 + 1))
    with pytest.raises(moorline.TooLarge):
        await moor.publish(f"{name}/a", b"x" * (4 * 1_048_576))
    with pytest.raises(moorline.TooLarge):
        await moor.publish(f"{name}/a", b"x", headers={"h": "x" * 16_384})
    with pytest.raises(moorline.TooLarge):
        await moor.publish(f"{name}/a", b"x", key=b"k" * 1_025)
    largest = b"x" * (256 * 1_024)
    await moor.publish(f"{name}/a", largest, key=b"k" * 1_024, headers={"h": "x" * 16_000})
    await until(lambda: reader.bodies == [largest])


async def test_bad_options_are_refused_by_name(moor: Moor, name: str) -> None:
    for window in (0, -1, 65_537):
        with pytest.raises(moorline.ConfigError, match="window"):
            await moor.subscribe(name, window=window)
    with pytest.raises(moorline.ConfigError, match="qos"):
        await moor.subscribe(name, qos=2)
    with pytest.raises(moorline.ConfigError, match="ttl_s"):
        await moor.publish(name, b"", ttl_s=-1)
    with pytest.raises(moorline.ConfigError, match="ttl_s"):
        await moor.publish(name, b"", ttl_s=1 << 32)
    with pytest.raises(moorline.ConfigError, match="bytes"):
        await moor.publish(name, "text")  # type: ignore[arg-type]
    for session in ("", "a\0b", "x" * 257, "\ud800"):
        with pytest.raises(moorline.ConfigError, match="session"):
            await moor.session(session)
    with pytest.raises(moorline.ConfigError, match="expiry_s"):
        await moor.session(name, expiry_s=-1)
    await moor.echo(b"still there")
    # The longest filter of a group has the group's name before it.
    await moor.subscribe(f"$shared/{name}/{'x' * 1_024}")


async def test_one_bad_message_of_a_call_refuses_the_whole_call(moor: Moor, name: str) -> None:
    reader = Reader(await moor.subscribe(f"{name}/#"))
    with pytest.raises(moorline.BadTopic):
        await moor.publish_all(
            [moorline.record(f"{name}/a", b"1"), moorline.record(f"{name}/+", b"2")]
        )
    await moor.publish(f"{name}/a", b"3")
    await until(lambda: reader.bodies == [b"3"])


async def test_words_about_what_was_never_delivered_do_no_harm(connect: Connect, name: str) -> None:
    group = f"$shared/{name}/{name}"
    hostile, moor = await connect(), await connect()
    shared = Reader(await hostile.subscribe(group, window=4), acks=False)
    private = Reader(await hostile.subscribe(name, window=4), acks=False)
    await moor.publish_all([moorline.record(name, body) for body in numbered(20)])
    await until(lambda: len(shared.got) == len(private.got) == 4)
    far = (1 << 63) - 1
    first = shared.got[0].offset
    for feed in [*hostile._subscriptions._feeds, 10**6, far]:
        for words in (
            AckMessages(feed, []),
            AckMessages(feed, [(first + 3, first), (first + 3, first + 1)] * 10),
            AckMessages(feed, [(far, 0), (far, far)]),
            AckMessages(feed, [(first + 4, far)]),
            AckMessages(feed, [(first + 4, first + 5)] * 10_000),
            RejectMessage(feed, far),
            RejectMessage(feed, first + 4),
            GiveBack(feed, [(first + 4, far), (far, 0), (first + 3, first + 1)]),
        ):
            hostile._caller.send(words)
    await hostile.echo(b"still there")
    # Nothing that was not delivered counts as done.
    assert sum(cursor.lag for cursor in (await moor.group(group).info()).cursors) == 20
    assert len(shared.got) == len(private.got) == 4
    # One range over all acknowledges what is out, and no more.
    for feed in list(hostile._subscriptions._feeds):
        hostile._caller.send(AckMessages(feed, [(0, far)]))
    await until(lambda: len(shared.got) == len(private.got) == 8)
    for reader in (shared, private):
        reader.acks = True
        for message in reader.got:
            await message.ack()
    await until(lambda: each_once([shared], numbered(20)) and each_once([private], numbered(20)))


async def test_a_window_is_never_exceeded_and_can_be_changed(moor: Moor, name: str) -> None:
    reader = Reader(await moor.subscribe(f"{name}/#", window=5), acks=False)
    await publish_all(moor, name, numbered(60))
    await until(lambda: len(reader.got) == 5)
    await moor.echo(b"")
    assert len(reader.got) == 5
    for message in reader.got[:3]:
        await message.ack()
    await until(lambda: len(reader.got) == 8)
    await moor.echo(b"")
    assert len(reader.got) == 8
    # Subscribed again with a wider one, more comes at once.
    assert await moor.subscribe(f"{name}/#", window=20) is reader.subscription
    await until(lambda: len(reader.got) == 23)
    reader.acks = True
    for message in reader.got:
        await message.ack()
    await until(lambda: each_once([reader], numbered(60)))


async def test_a_rejected_message_of_a_plain_subscription_comes_again(
    moor: Moor, name: str
) -> None:
    subscription = await moor.subscribe(name)
    await moor.publish(name, b"again")
    for deliveries in range(1, 10):
        message = await subscription.get(10)
        assert message is not None
        assert message.deliveries == deliveries
        await message.reject()


async def test_batches_are_runs_of_a_stream_and_end_with_the_subscription(
    moor: Moor, name: str
) -> None:
    subscription = await moor.subscribe(f"{name}/#")
    await publish_all(moor, name, numbered(100))
    got: list[Batch] = []
    async for batch in subscription.batches():
        got.append(batch)
        await batch.ack()
        if sum(len(one.messages) for one in got) == 100:
            await subscription.close()
    bodies = [message.body for batch in got for message in batch.messages]
    assert sorted(bodies) == numbered(100)
    assert all(message.stream == batch.stream for batch in got for message in batch.messages)
    assert await subscription.get(1) is None
    assert [message async for message in subscription] == []


async def test_a_slow_client_holds_up_only_itself(connect: Connect, name: str) -> None:
    moor, slow, fast = await connect(), await connect(), await connect()
    lazy = await slow.subscribe(f"{name}/#", window=65_536)
    reader = Reader(await fast.subscribe(f"{name}/#"))
    # It does not read its socket at all.
    slow._caller.hold_reading("test")
    body = b"s" * 60_000
    for number in range(0, 600, 30):
        await moor.publish_all(
            [
                moorline.record(f"{name}/{one % 8}", b"%06d" % one + body)
                for one in range(number, number + 30)
            ]
        )
    await until(lambda: len(reader.got) == 600)
    slow._caller.release_reading("test")
    late = Reader(lazy)
    await until(lambda: len(late.got) == 600)
    assert {body[:6] for body in late.bodies} == set(numbered(600))
