"""The flow of a subscription: resolver, publisher, value, updates; batches, defaults and writing back."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from tests.values.world import Values
from tests.waiting import until

from moorline.client.values.subscriber import Subscriber
from moorline.client.values.subscription import Kind, ValueSubscription
from moorline.core.access.principal import LOOPBACK
from moorline.core.access.right import EVERYTHING, SUBSCRIBE, WRITE
from moorline.core.access.row import Row
from moorline.errors import (
    AlreadyThere,
    BadPath,
    BadValue,
    CallFailed,
    Denied,
    MoorlineError,
    NoSuchValue,
    NotFound,
)


def alive(found: ValueSubscription | MoorlineError) -> ValueSubscription:
    assert isinstance(found, ValueSubscription), found
    return found


def is_close(seen: list[int], sent: int) -> bool:
    return len(seen) >= sent - 1_000


async def test_t1_a_subscription_has_the_value_and_its_updates_in_order(values: Values) -> None:
    """T1: the current value at once, then updates by id; order holds over 100,000 of them."""
    publisher = await values.publisher()
    value = publisher.publish("/oslo/temperature", -1)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    subscription = await subscriber.subscribe("/oslo/temperature")
    assert subscription.value == -1
    seen: list[int] = []

    async def read() -> None:
        async for event in subscription:
            if event.kind is Kind.UPDATE:
                seen.append(event.value)
            if event.value == 99_999:
                return

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    for start in range(0, 100_000, 500):
        for number in range(start, start + 500):
            value.update(number)
        assert await publisher.commit(10) == 1
        await until(partial(is_close, seen, start), "the reader keeps up")
    await asyncio.wait_for(reading, 20)
    assert seen == list(range(100_000))


async def test_t2_unknown_gone_and_denied_paths_have_their_errors(values: Values) -> None:
    """T2: not found; known to the resolver and gone at the publisher; 999 of 1,000 beside one denied."""
    publisher = await values.publisher()
    made = publisher.publish_all((f"/a/{number}", number) for number in range(1_000))
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    with pytest.raises(NotFound):
        await subscriber.subscribe("/nobody")
    await values.server.change_rights(Row("/a/7", LOOPBACK, denies=EVERYTHING))
    found = await subscriber.subscribe_all([value.path for value in made])
    assert [place for place, one in enumerate(found) if isinstance(one, MoorlineError)] == [7]
    assert isinstance(found[7], Denied)
    assert [one.value for one in found if isinstance(one, ValueSubscription)] == [
        number for number in range(1_000) if number != 7
    ]
    # Behind the resolver's back: its entry stays for a moment longer than the value.
    other = await values.subscriber()
    publisher.board.unpublish(made[9].id)
    with pytest.raises(NoSuchValue):
        await other.subscribe("/a/9")


@pytest.mark.slow
async def test_t3_a_thousand_subscribers_are_shared_out_evenly(values: Values) -> None:
    """T3: two publishers of one path, and 1,000 subscribers of it: each publisher gets 400 to 600."""
    publishers = [await values.publisher() for _ in range(2)]
    for publisher in publishers:
        publisher.publish("/shared", 0)
        await publisher.replicated(10)

    async def chosen(places: asyncio.Semaphore) -> bytes:
        async with places, Subscriber(values.server.address) as subscriber:
            return (await subscriber.subscribe("/shared")).publisher

    places = asyncio.Semaphore(50)
    seen = Counter(await asyncio.gather(*(chosen(places) for _ in range(1_000))))
    assert set(seen) == {publisher.instance for publisher in publishers}
    assert all(400 <= count <= 600 for count in seen.values()), seen


async def test_t3_subscriptions_of_one_subscriber_are_shared_out_too(values: Values) -> None:
    """T3: two publishers, and 1,000 paths that both have."""
    publishers = [await values.publisher() for _ in range(2)]
    for publisher in publishers:
        publisher.publish_all((f"/shared/{number}", 0) for number in range(1_000))
        await publisher.replicated(10)
    subscriber = await values.subscriber()
    found = await subscriber.subscribe_all([f"/shared/{number}" for number in range(1_000)])
    chosen = Counter(alive(one).publisher for one in found)
    assert set(chosen) == {publisher.instance for publisher in publishers}
    assert all(400 <= count <= 600 for count in chosen.values()), chosen


async def test_the_better_priority_is_taken(values: Values) -> None:
    best = await values.publisher(priority=0)
    other = await values.publisher(priority=2)
    for publisher in (best, other):
        publisher.publish_all((f"/p/{number}", 0) for number in range(50))
        await publisher.replicated(10)
    subscriber = await values.subscriber()
    found = await subscriber.subscribe_all([f"/p/{number}" for number in range(50)])
    assert {alive(one).publisher for one in found} == {best.instance}


async def test_who_does_not_have_it_any_more_is_not_asked_again_before_the_others(
    values: Values,
) -> None:
    """S3 for those who go through the flow once: two publishers, one of them empty, are two tries."""
    empty, full = await values.publisher(), await values.publisher()
    for publisher in (empty, full):
        publisher.publish("/x", 1)
        await publisher.replicated(10)
    one = empty.board.id_of("/x")
    assert one is not None
    empty.board.unpublish(one)  # without a word to the resolver
    has_failed = 0
    for _ in range(20):
        subscriber = await values.subscriber()
        try:
            await subscriber.subscribe("/x")
        except NoSuchValue:
            has_failed += 1
            await subscriber.subscribe("/x")
    assert has_failed, "by chance none of twenty went to the empty one first"


async def test_t4_two_subscriptions_to_one_path_make_one_request(values: Values) -> None:
    """T4: also at the same moment, and durable beside plain; the publisher sees one subscriber."""
    publisher = await values.publisher()
    value = publisher.publish("/one", 1)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    first, second = await asyncio.gather(subscriber.subscribe("/one"), subscriber.subscribe("/one"))
    third = subscriber.durable_subscribe("/one")
    assert await third.wait(5) == 1
    assert value.subscribers == 1
    assert len(publisher.board._followed) == 1
    first.drop()
    second.drop()
    assert value.subscribers == 1
    third.drop()
    await until(lambda: value.subscribers == 0, "the last one leaves")


async def test_t5_a_batch_is_seen_whole(values: Values) -> None:
    """T5: whoever looks, whenever it subscribed, sees all values of one commit, never some."""
    publisher = await values.publisher()
    made = publisher.publish_all((f"/b/{number}", 0) for number in range(20))
    await publisher.replicated(10)
    subscribers = [await values.subscriber() for _ in range(3)]
    seen: list[set[int]] = []

    async def look(number: int) -> None:
        some = [value.path for value in made][number:]
        found = await subscribers[number].subscribe_all(some)
        while not seen or max(map(max, seen)) < 300:
            seen.append({alive(one).value for one in found})
            await asyncio.sleep(0)

    looking = [asyncio.create_task(look(number)) for number in range(3)]
    for round_ in range(1, 301):
        publisher.update_all([value.id for value in made], [round_] * 20)
        await publisher.commit(10)
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*looking), 20)
    assert all(len(one) == 1 for one in seen)


async def test_t6_values_are_written_back(values: Values) -> None:
    """T6: with and without a receipt, without the right, and to a value that takes none."""
    publisher = await values.publisher()
    written: list[tuple[Any, str]] = []

    async def wrote(value: Any, who: str) -> str:
        written.append((value, who))
        if value == "bad":
            raise BadValue("this one is not taken")
        return f"took {value}"

    publisher.publish("/w/takes", 0, writer=wrote)
    publisher.publish("/w/deaf", 0)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    takes = await subscriber.subscribe("/w/takes")
    assert await takes.write(5, wants_receipt=True) == "took 5"
    assert await takes.write(6) is None
    await until(lambda: len(written) == 2, "the second is heard")
    assert written == [(5, "anonymous"), (6, "anonymous")]
    with pytest.raises(BadValue, match="not taken"):
        await takes.write("bad", wants_receipt=True)
    deaf = await subscriber.subscribe("/w/deaf")
    with pytest.raises(CallFailed, match="takes no values"):
        await deaf.write(1)
    await values.server.change_rights(Row("/w", LOOPBACK, denies=WRITE))
    other = await values.subscriber()
    reader = await other.subscribe("/w/takes")
    with pytest.raises(Denied):
        await reader.write(7)
    assert len(written) == 3


async def test_defaults_make_values_on_demand_and_forget_them(values: Values) -> None:
    """By levels: the nearest default has it, and a longer name is not below a shorter one."""
    publisher = await values.publisher()
    made: list[str] = []

    async def make(path: str) -> int:
        made.append(path)
        if path.endswith("none"):
            raise NotFound("there is none")
        return len(path)

    publisher.default("/d", make)
    publisher.default("/d/deep", lambda path: f"deep {path}")
    await publisher.replicated(10)
    subscriber, other = await values.subscriber(), await values.subscriber()
    first, second = await asyncio.gather(subscriber.subscribe("/d/x"), other.subscribe("/d/x"))
    assert first.value == second.value == 4
    assert made == ["/d/x"]
    assert (await subscriber.subscribe("/d/deep/y")).value == "deep /d/deep/y"
    with pytest.raises(NoSuchValue):
        await subscriber.subscribe("/d/none")
    with pytest.raises(NotFound):
        await subscriber.subscribe("/d2/x")
    first.drop()
    second.drop()
    await until(lambda: publisher.board.id_of("/d/x") is None, "it is forgotten")


async def test_values_of_every_kind_arrive_as_they_were(values: Values) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    given: list[Any] = [
        None,
        True,
        -(1 << 63),
        (1 << 64) - 1,
        1.5,
        "fjord ø",
        b"\0\xff",
        now,
        [1, [2, {"a": None}]],
        {"x": {"y": [now]}},
    ]
    publisher = await values.publisher()
    publisher.publish_all((f"/k/{place}", value) for place, value in enumerate(given))
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    found = await subscriber.subscribe_all([f"/k/{place}" for place in range(len(given))])
    assert [alive(one).value for one in found] == given


async def test_what_is_no_value_or_path_is_refused_and_nothing_else_is_lost(values: Values) -> None:
    publisher = await values.publisher()
    deep: Any = None
    for _ in range(100):
        deep = [deep]
    for bad in (1 << 64, object(), {1: 2}, datetime(2026, 1, 1), deep, "x" * (2 << 20), "\ud800"):
        with pytest.raises(BadValue):
            publisher.publish("/x", bad)
    with pytest.raises(BadPath):
        publisher.publish("no/slash", 1)
    good, bad = publisher.publish("/good", 0), publisher.publish("/bad", 0)
    with pytest.raises(AlreadyThere):
        publisher.publish("/good", 1)
    good.update(1)
    bad.update(1 << 70)
    good.update(2)
    with pytest.raises(BadValue, match="/bad"):
        await publisher.commit()
    assert good.value == 0
    await publisher.commit()
    assert (good.value, bad.value) == (2, 0)


@pytest.mark.slow
async def test_a_batch_of_many_and_of_long_values_comes_whole(values: Values) -> None:
    """Beyond the bounds of a message and of a frame."""
    publisher = await values.publisher()
    many = publisher.publish_all((f"/m/{number}", 0) for number in range(20_000))
    long = publisher.publish_all((f"/l/{number}", "") for number in range(12))
    await publisher.replicated(20)
    subscriber = await values.subscriber()
    found = await subscriber.subscribe_all([value.path for value in (*many, *long)])
    batches = subscriber.batches()
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    publisher.update_all([value.id for value in many], list(range(20_000)))
    for value in long:
        value.update("y" * 300_000)
    await publisher.commit(10)
    batch = await asyncio.wait_for(waiting, 20)
    assert len(batch.paths) == 20_012
    assert alive(found[19_999]).value == 19_999
    assert alive(found[-1]).value == "y" * 300_000


async def test_an_unpublished_value_ends_with_an_event(values: Values) -> None:
    publisher = await values.publisher()
    value, other = publisher.publish("/u/1", 1), publisher.publish("/u/2", 2)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    one, two = await subscriber.subscribe("/u/1"), await subscriber.subscribe("/u/2")
    value.unpublish()
    kinds = [event.kind async for event in one]
    assert kinds[-1] is Kind.DEAD
    assert "UNPUBLISHED" in one.why
    other.update(3)
    await publisher.commit()
    await until(lambda: two.value == 3, "the other goes on")


async def test_t15_a_right_that_is_taken_away_ends_the_subscription(values: Values) -> None:
    """T15: at a publisher outside of nodes too: its resolver tells it, and it asks again."""
    publisher = await values.publisher()
    secret, other = publisher.publish("/r/secret", 1), publisher.publish("/r/other", 2)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    lost, kept = await subscriber.subscribe("/r/secret"), await subscriber.subscribe("/r/other")
    await values.server.change_rights(Row("/r/secret", LOOPBACK, denies=SUBSCRIBE))
    await until(lambda: lost.is_over, "the subscription is cut", 2.0)
    assert "DENIED" in lost.why
    secret.update(9)
    other.update(3)
    await publisher.commit()
    await until(lambda: kept.value == 3, "the other goes on")
    assert lost.value == 1
