"""The deadline that all calls of a client share: whose time passes, and who is cancelled by somebody else."""

import asyncio

import pytest

from moorline.client.deadline import SharedDeadline

SECONDS = 0.05
WITHIN_S = 20


async def call(shared: SharedDeadline, number: int, answer: "asyncio.Future[str]") -> str:
    within = shared.begin(number)
    try:
        with within:
            return await answer
    except TimeoutError:
        return f"{number} has no time left"
    finally:
        shared.end(number)


def futures(count: int) -> "list[asyncio.Future[str]]":
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


async def test_each_call_ends_in_its_time_and_those_that_were_answered_do_not() -> None:
    loop, shared, answers = asyncio.get_running_loop(), SharedDeadline(SECONDS), futures(3)
    ended: list[tuple[str, float]] = []

    async def timed(number: int) -> None:
        begun_s = loop.time()
        ended.append((await call(shared, number, answers[number]), loop.time() - begun_s))

    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        group.create_task(timed(0))
        await asyncio.sleep(SECONDS / 2)
        group.create_task(timed(1))
        group.create_task(timed(2))
        await asyncio.sleep(0)
        answers[1].set_result("answered")
    assert [text for text, _ in ended] == ["answered", "0 has no time left", "2 has no time left"]
    # A loop's clock may be a millisecond early.
    assert all(took_s > SECONDS - 0.002 for text, took_s in ended if text != "answered")


async def test_behind_a_pause_the_next_call_has_its_time_again() -> None:
    shared = SharedDeadline(SECONDS)
    async with asyncio.timeout(WITHIN_S):
        for number in range(3):
            assert await call(shared, number, futures(1)[0]) == f"{number} has no time left"
    assert asyncio.current_task() is not None
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_whoever_is_cancelled_by_others_is_cancelled() -> None:
    """Also where its time passes in the same turn."""
    shared, answers = SharedDeadline(WITHIN_S), futures(2)
    tasks = [asyncio.create_task(call(shared, number, answers[number])) for number in range(2)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    _, within = shared._calls[1]
    within.end()
    tasks[1].cancel()
    for task in tasks:
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not shared._calls


async def test_many_calls_set_one_timer() -> None:
    shared, answers = SharedDeadline(WITHIN_S), futures(100)
    loop, timers = asyncio.get_running_loop(), 0

    class Counting:
        """The loop, and how many timers it was asked for."""

        time = staticmethod(loop.time)

        def call_later(self, *_: object) -> None:
            nonlocal timers
            timers += 1

    shared._loop = Counting()  # type: ignore[assignment]
    tasks = [asyncio.create_task(call(shared, n, answer)) for n, answer in enumerate(answers)]
    await asyncio.sleep(0)
    assert len(shared._calls) == 100
    for answer in answers:
        answer.set_result("answered")
    assert await asyncio.gather(*tasks) == ["answered"] * 100
    assert timers == 1
    assert not shared._calls
