"""The deadline that all calls of a client share: whose time passes, and how many timers that takes."""

import asyncio

from moorline.client.deadline import SharedDeadline

SECONDS = 0.05
WITHIN_S = 20


class Calls:
    """Calls that wait for an answer, or for their time to pass."""

    def __init__(self, seconds: float) -> None:
        self.shared = SharedDeadline(seconds, self.end)
        self.answers: dict[int, asyncio.Future[str]] = {}

    def end(self, number: int) -> None:
        self.answers[number].set_result("no time left")

    async def make(self, number: int) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.answers[number] = answer
        self.shared.begin(number)
        try:
            return await answer
        finally:
            self.shared.over(number)


async def test_each_call_ends_in_its_time_and_those_that_were_answered_do_not() -> None:
    loop, calls = asyncio.get_running_loop(), Calls(SECONDS)
    ended: list[tuple[int, str, float]] = []

    async def timed(number: int) -> None:
        begun_s = loop.time()
        text = await calls.make(number)
        ended.append((number, text, loop.time() - begun_s))

    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        group.create_task(timed(0))
        await asyncio.sleep(SECONDS / 2)
        group.create_task(timed(1))
        group.create_task(timed(2))
        await asyncio.sleep(0)
        calls.answers[1].set_result("answered")
    assert [one[:2] for one in ended] == [(1, "answered"), (0, "no time left"), (2, "no time left")]
    # A loop's clock may be a millisecond early.
    assert all(took_s > SECONDS - 0.002 for _, text, took_s in ended if text != "answered")


async def test_behind_a_pause_the_next_call_has_its_time_again() -> None:
    calls = Calls(SECONDS)
    async with asyncio.timeout(WITHIN_S):
        for number in range(3):
            assert await calls.make(number) == "no time left"


async def test_it_says_until_when_a_call_has_time() -> None:
    loop, shared = asyncio.get_running_loop(), Calls(WITHIN_S).shared
    begun_s = loop.time()
    assert shared.begin(1) >= begun_s + WITHIN_S
    shared.over(1)
    shared.over(1)
    assert not shared._calls


async def test_many_calls_set_one_timer() -> None:
    calls = Calls(WITHIN_S)
    shared, loop, timers = calls.shared, asyncio.get_running_loop(), 0

    class Counting:
        """The loop, and how many timers it was asked for."""

        time = staticmethod(loop.time)

        def call_later(self, *_: object) -> None:
            nonlocal timers
            timers += 1

    shared._loop = Counting()  # type: ignore[assignment]
    tasks = [asyncio.create_task(calls.make(number)) for number in range(100)]
    await asyncio.sleep(0)
    assert len(shared._calls) == 100
    for answer in calls.answers.values():
        answer.set_result("answered")
    assert await asyncio.gather(*tasks) == ["answered"] * 100
    assert timers == 1
    assert not shared._calls
