"""Subscribers that do not read: they are cut or folded, and stall nobody."""

import asyncio
from typing import Any

import pytest
from tests.values.test_tokens import granted, link_to
from tests.values.world import Values
from tests.waiting import until

pytestmark = pytest.mark.slow


async def test_t21_one_that_does_not_read_is_cut_and_the_other_is_not_stalled(
    values: Values,
) -> None:
    """T21, within one process: 500,000 updates flow; memory is bounded, and the other has them all."""
    publisher = await values.publisher()
    made = publisher.publish_all((f"/s/{number}", 0) for number in range(1_000))
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    found = await subscriber.subscribe_all([value.path for value in made])
    assert len(found) == 1_000
    stuck = await link_to(publisher)
    await stuck.subscribe([(made[0].path, await granted(values, made[0].path))])
    grants = [(value.path, await granted(values, value.path)) for value in made[1:20]]
    await stuck.subscribe(grants)
    stuck._caller.hold_reading("a test")
    stuck._watching.cancel()
    ids = [value.id for value in made]
    body = "x" * 1_000
    for round_ in range(500):
        publisher.update_all(
            ids, [f"{round_} {body}" if place < 20 else round_ for place in range(1_000)]
        )
        await publisher.commit(5)
    await until(lambda: len(publisher.board._followed) == 1, "the stuck one is cut", 30)
    last: Any = found[999]
    await until(lambda: last.value == 499, "the other has the last of them")


async def test_a_commit_without_a_timeout_never_waits(values: Values) -> None:
    publisher = await values.publisher(batches_max=4)
    value = publisher.publish("/n", "")
    await publisher.replicated(10)
    stuck = await link_to(publisher)
    await stuck.subscribe([("/n", await granted(values, "/n"))])
    stuck._caller.hold_reading("a test")
    stuck._watching.cancel()
    for _ in range(200):
        value.update("x" * 500_000)
        # Nothing is awaited in it: it is done at the first step.
        step = publisher.commit()
        try:
            step.send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("it waited")
        await asyncio.sleep(0)
    await until(lambda: value.subscribers == 0, "it is cut")


async def test_a_conflating_subscriber_is_not_cut_and_has_the_latest(values: Values) -> None:
    publisher = await values.publisher(batches_max=4)
    value = publisher.publish("/c", "")
    await publisher.replicated(10)
    subscriber = await values.subscriber(conflate=True)
    subscription = await subscriber.subscribe("/c")
    (link,) = subscriber._handles._ids
    link._caller.hold_reading("a test")
    for number in range(100):
        value.update(f"{number} " + "x" * 500_000)
        await publisher.commit()
        await asyncio.sleep(0)
    assert value.subscribers == 1
    link._caller.release_reading("a test")
    await until(lambda: str(subscription.value).startswith("99 "), "the latest arrives")


async def test_who_missed_a_batch_of_a_cancelled_commit_is_cut(values: Values) -> None:
    """It is committed, and has not come: to go on would be a gap that nobody is told of."""
    publisher = await values.publisher(batches_max=1, bytes_max=1)
    value = publisher.publish("/x", b"")
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    subscription = await subscriber.subscribe("/x")
    link, _ = subscriber._handles.place_of("/x")
    link._caller._transport.pause_reading()  # type: ignore[union-attr]
    (follower,) = publisher._sessions._followers.values()
    while not len(follower.outlet):
        value.update(bytes(500_000))
        await publisher.commit(60)
    value.update(b"the last")
    waiting = asyncio.create_task(publisher.commit(60))
    await until(lambda: follower._awaited == 1, "it waits for room")
    waiting.cancel()
    await until(lambda: value.subscribers == 0, "it is cut")
    link._caller._transport.resume_reading()  # type: ignore[union-attr]
    await until(lambda: subscription.is_over, "and hears of it")
