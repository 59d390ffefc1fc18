"""Several readers of one subscription, and calls about subscriptions that nobody waits for any more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.topics.real_node import Connect
from tests.topics.scenes import WITHIN_S, described, numbered
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Batch, Subscription, TopicMessage

pytestmark = pytest.mark.process


async def at_hand(moor: Moor, name: str, count: int) -> Subscription:
    """A subscription that has so many messages of one stream, in one batch or in few."""
    await moor.publish_all([moorline.record(f"{name}/1", body) for body in numbered(count)])
    subscription = await moor.subscribe(f"{name}/#", start="beginning")
    await until(lambda: bool(subscription._waiting))
    return subscription


async def taken(subscription: Subscription) -> TopicMessage:
    async with asyncio.timeout(WITHIN_S):
        return await anext(subscription)


@contextlib.asynccontextmanager
async def batched(subscription: Subscription) -> AsyncIterator[AsyncIterator[Batch]]:
    async with asyncio.timeout(WITHIN_S), contextlib.aclosing(subscription.batches()) as batches:  # type: ignore[type-var]
        yield batches


async def test_two_tasks_that_wait_share_what_comes_in_one_batch(moor: Moor, name: str) -> None:
    """The second does not wait for the next batch while messages of this one are at hand."""
    subscription = await moor.subscribe(f"{name}/#", start="beginning")
    readers = [asyncio.create_task(taken(subscription)) for _ in range(3)]
    await asyncio.sleep(0)
    await moor.publish_all([moorline.record(f"{name}/1", body) for body in numbered(3)])
    messages = await asyncio.gather(*readers)
    assert sorted(one.body for one in messages) == numbered(3)
    await subscription.close()


async def test_each_message_goes_to_one_of_many_readers_also_if_some_are_cancelled(
    moor: Moor, name: str
) -> None:
    """Ten readers, one after the other cancelled and replaced: all messages come, and none twice."""
    subscription = await moor.subscribe(f"{name}/#", start="beginning", window=64)
    got: list[bytes] = []

    async def read() -> None:
        while True:
            message = await anext(subscription)
            got.append(message.body)
            await message.ack()
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read()) for _ in range(10)]
    for start in range(0, 600, 60):
        bodies = numbered(60, start)
        await moor.publish_all([moorline.record(f"{name}/{body[-1]}", body) for body in bodies])
        readers.pop(0).cancel()
        readers.append(asyncio.create_task(read()))
    await until(lambda: len(got) >= 600)
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    assert sorted(got) == numbered(600)
    await subscription.close()


async def test_batches_begin_with_what_was_left_by_readers_of_single_messages(
    moor: Moor, name: str
) -> None:
    """And the other way round; the rest of a batch is a batch, with its frames and its acknowledgement."""
    subscription = await at_hand(moor, name, 10)
    bodies = [(await taken(subscription)).body for _ in range(3)]
    async with batched(subscription) as batches:
        while len(bodies) < 10:
            batch = await anext(batches)
            assert batch.messages[0].body in batch.frames
            assert bodies[-1] not in batch.frames
            bodies += [message.body for message in batch.messages]
            await batch.ack()
        await moor.publish(f"{name}/1", b"000010")
        bodies.append((await taken(subscription)).body)
    assert bodies == numbered(11)
    await subscription.close()


async def test_what_is_left_of_a_batch_that_one_reader_began_is_given_back(
    moor: Moor, connect: Connect, name: str
) -> None:
    """A member takes one of ten and leaves: another gets the nine, and the one that was not acknowledged."""
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create(start="beginning")
    await moor.publish_all([moorline.record(f"{name}/1", body) for body in numbered(10)])
    first = await moor.subscribe(group)
    await (await taken(first)).ack()
    held = await taken(first)
    await first.close()
    second = await (await connect()).subscribe(group)
    rest = [await taken(second) for _ in range(9)]
    assert sorted(one.body for one in rest) == [held.body, *numbered(8, 2)]
    assert {one.deliveries for one in rest if one.body != held.body} == {1}, "nobody is to blame"
    await second.close()


async def test_subscribes_that_are_cancelled_do_not_stay_in_the_way_of_the_next(
    moor: Moor, name: str
) -> None:
    """Three hundred at once: the node begins few of them, undoes those, and serves the next."""
    group = f"$shared/{name}/{name}/#"
    asked = [
        asyncio.ensure_future(_subscribed(moor, f"{name}/{number}/#")) for number in range(299)
    ]
    asked.append(asyncio.ensure_future(_subscribed(moor, group)))
    await asyncio.sleep(0)
    for one in asked:
        one.cancel()
    await asyncio.wait(asked)
    async with asyncio.timeout(WITHIN_S):
        last = await moor.subscribe(f"{name}/#", start="beginning")
    assert last.number < 150, "most of them were never begun"
    await moor.publish(f"{name}/1", b"ahoy")
    assert (await taken(last)).body == b"ahoy"
    await last.close()
    await until(lambda: not moor._subscriptions._known)
    if group in {one.name for one in await moor.groups()}:
        await described(moor, group, lambda found: not found.members)


async def _subscribed(moor: Moor, filter_text: str) -> Subscription:
    return await moor.subscribe(filter_text, start="beginning")


async def test_one_filter_that_two_wait_for_is_kept_for_the_one_that_still_waits(
    moor: Moor, name: str
) -> None:
    """The node has one subscription for both: it must not be taken back with the first."""
    first, second = (asyncio.ensure_future(_subscribed(moor, f"{name}/#")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    subscription = await second
    await moor.publish(f"{name}/1", b"ahoy")
    assert (await taken(subscription)).body == b"ahoy"
    await subscription.close()


async def test_a_session_that_was_opened_for_nobody_is_there_for_the_next_who_asks(
    connect: Connect, name: str
) -> None:
    """The call is cancelled at every moment; then the session is opened, with all its subscriptions."""
    one = await connect()
    await one.session(name)
    await one.subscribe(f"{name}/#", start="beginning")
    await one.publish(f"{name}/1", b"ahoy")
    await one.close()
    for turns in range(12):
        moor = await connect()
        opening = asyncio.ensure_future(moor.session(name))
        for _ in range(turns * turns):
            await asyncio.sleep(0.0005 if turns > 5 else 0)
        opening.cancel()
        await asyncio.wait([opening])
        if opening.cancelled():
            async with asyncio.timeout(WITHIN_S):
                (subscription,) = await moor.session(name)
        else:
            (subscription,) = opening.result()
        assert (await taken(subscription)).body == b"ahoy"
        await moor.close()
