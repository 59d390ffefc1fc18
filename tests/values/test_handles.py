"""Handles that come and go while others wait: nothing is left behind, and nobody takes it from another."""

import asyncio
from collections.abc import Callable

import pytest
from tests.values.world import Values
from tests.waiting import until

from moorline.client.values.subscriber import Subscriber
from moorline.errors import ConnectionLost, NoSuchValue, SubscriptionEnded, Unreachable


async def turns_until(condition: Callable[[], bool]) -> None:
    """Turn by turn: what is looked for lasts for less than a pause."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


async def test_who_is_cancelled_leaves_no_subscription_behind(values: Values) -> None:
    publisher = await values.publisher()
    made = publisher.publish("/x", 1)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    waiting = asyncio.create_task(subscriber.subscribe("/x"))
    await turns_until(lambda: bool(subscriber._subscribing))
    waiting.cancel()
    await until(lambda: not subscriber._subscribing, "it has come")
    await until(lambda: made.subscribers == 0 and not subscriber._steps.links, "it is left")


async def test_a_handle_that_is_dropped_takes_nothing_from_who_waits(values: Values) -> None:
    """One call for two paths, of which another handle of the first is dropped meanwhile."""
    publisher = await values.publisher()
    publisher.publish_all([("/x", 1), ("/y", 2)])
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    first = await subscriber.subscribe("/x")
    waiting = asyncio.create_task(subscriber.subscribe_all(["/x", "/y"]))
    await turns_until(lambda: bool(subscriber._subscribing))
    first.drop()
    assert [getattr(one, "value", one) for one in await waiting] == [1, 2]


async def test_a_durable_one_that_is_dropped_at_once_takes_nothing_either(values: Values) -> None:
    publisher = await values.publisher()
    publisher.publish("/x", 1)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    waiting = asyncio.create_task(subscriber.subscribe("/x"))
    await turns_until(lambda: bool(subscriber._steps._grants))
    subscriber.durable_subscribe("/x").drop()
    assert (await waiting).value == 1


async def test_the_value_of_a_dropped_handle_is_the_last_one(values: Values) -> None:
    publisher = await values.publisher()
    publisher.publish("/x", 1)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    subscription = await subscriber.subscribe("/x")
    subscription.drop()
    assert subscription.value == 1


async def test_a_connection_where_everything_is_refused_ends(values: Values) -> None:
    publisher = await values.publisher()
    made = publisher.publish("/x", 1)
    await publisher.replicated(10)
    publisher.board.unpublish(made.id)
    subscriber = await values.subscriber()
    with pytest.raises(NoSuchValue):
        await subscriber.subscribe("/x")
    assert subscriber._steps.links == 0


async def test_an_end_right_behind_the_value_is_not_missed(values: Values) -> None:
    """Both come in one piece: the subscriber has its answer only when it has heard the end too."""
    publisher = await values.publisher()
    publisher.publish("/z", 0)
    made = publisher.publish("/x", 1)
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    await subscriber.subscribe("/z")
    sessions = publisher._sessions
    subscribe = sessions._subscribed

    def and_unpublish(*arguments: object) -> object:
        answer = subscribe(*arguments)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(made.unpublish)
        return answer

    sessions._subscribed = and_unpublish  # type: ignore[method-assign, assignment]
    handle = subscriber.durable_subscribe("/x")
    await until(lambda: handle.why != "it is not subscribed yet", "it was alive, or never")
    await until(lambda: not handle.is_alive, "it hears of the end")
    assert "/x" not in subscriber._handles


async def test_updates_that_were_on_their_way_do_not_stay(values: Values) -> None:
    publisher = await values.publisher()
    kept, gone = publisher.publish_all([("/x", 1), ("/y", 2)])
    await publisher.replicated(10)
    subscriber = await values.subscriber()
    first, second = subscriber.durable_subscribe_all(["/x", "/y"])
    await first.wait(10)
    await second.wait(10)
    link, _ = subscriber._handles.place_of("/x")
    for number in range(3, 10):
        publisher.update_all([kept.id, gone.id], [number, number])
        await publisher.commit()
    second.drop()
    await until(lambda: first.value == 9, "all have come")
    assert set(link.latest) == {kept.id}


async def test_a_value_that_comes_when_nobody_waits_any_more_is_left(values: Values) -> None:
    """Found by the simulation of the whole: the publisher went on to send it, and nobody had it."""
    publisher = await values.publisher()
    publisher.publish("/x", 1)
    go_on = asyncio.Event()

    made: list[str] = []

    async def make(path: str) -> str:
        await go_on.wait()
        made.append(path)
        return path

    publisher.default("/d", make)
    await publisher.replicated(10)
    subscriber = await values.subscriber(timeout_ms=300)
    # Another one keeps the connection.
    await subscriber.subscribe("/x")
    with pytest.raises(Unreachable):
        await subscriber.subscribe("/d/y")
    go_on.set()
    await until(lambda: bool(made), "it is made")
    await until(lambda: publisher.board.id_of("/d/y") is None, "and forgotten")
    # Where a second one waits for the same, it keeps what the first did not wait for.
    go_on.clear()
    with pytest.raises(Unreachable):
        await subscriber.subscribe("/d/z")
    second = asyncio.create_task(subscriber.subscribe("/d/z"))
    await turns_until(lambda: bool(subscriber._steps._users))
    link, _ = subscriber._handles.place_of("/x")
    await turns_until(lambda: len(link._asking) == 2)
    go_on.set()
    assert (await second).value == "/d/z"
    one = publisher.board.id_of("/d/z")
    assert one is not None
    publisher.update_all([one], ["new"])
    await publisher.commit()
    await until(lambda: second.result().value == "new", "it goes on")


async def test_who_waits_at_the_close_hears_of_it(values: Values) -> None:
    publisher = await values.publisher()
    publisher.publish("/x", 1)
    await publisher.replicated(10)
    subscriber = Subscriber([values.server.address])
    waiting = asyncio.create_task(subscriber.subscribe("/x"))
    batches = asyncio.create_task(anext(subscriber.batches(), None))
    await turns_until(lambda: bool(subscriber._subscribing and subscriber._batches))
    await subscriber.close()
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(waiting, 10)
    assert await asyncio.wait_for(batches, 10) is None
    with pytest.raises(SubscriptionEnded):
        await subscriber.subscribe("/x")
    with pytest.raises(SubscriptionEnded):
        subscriber.durable_subscribe("/x")
