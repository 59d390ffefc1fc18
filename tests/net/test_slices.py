"""Long work in slices: others have their turn, and those who have long work take turns."""

import asyncio
from collections.abc import Generator

import pytest

from moorline.net.slices import in_slices


@pytest.fixture(autouse=True)
def _short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice is one step: the order of events does not depend on the machine."""
    monkeypatch.setattr("moorline.net.slices.SLICE_MS", 0)


def counting(name: str, upto: int, told: list[str]) -> Generator[None, None, int]:
    for number in range(upto):
        told.append(f"{name}{number}")
        yield
    return upto


async def test_it_returns_what_the_work_returns() -> None:
    assert await in_slices(counting("a", 0, [])) == 0
    assert await in_slices(counting("a", 3, [])) == 3


async def test_what_the_work_raises_is_raised() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_slices(failing())
    assert await in_slices(counting("a", 2, [])) == 2, "the turn was given back"


async def test_others_run_between_two_slices() -> None:
    told: list[str] = []

    async def other() -> None:
        for number in range(3):
            told.append(f"other {number}")
            await asyncio.sleep(0)

    await asyncio.gather(in_slices(counting("a", 9, told)), other())
    assert told.index("other 2") < told.index("a8")


async def test_those_who_have_long_work_take_turns_one_slice_in_a_turn_of_the_loop() -> None:
    told: list[str] = []
    turns = [0]
    steps: dict[int, int] = {}

    async def count_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def noting(name: str) -> Generator[None, None, None]:
        for step in counting(name, 5, told):
            steps[turns[0]] = steps.get(turns[0], 0) + 1
            yield step

    counter = asyncio.create_task(count_turns())
    await asyncio.gather(*(in_slices(noting(name)) for name in "abcdefgh"))
    counter.cancel()
    assert max(steps.values()) <= 2, "however many there are"
    assert {one[0] for one in told[:8]} == set("abcdefgh"), "none waits for another's end"


async def test_work_that_is_cancelled_is_closed_and_leaves_its_turn_to_others() -> None:
    closed: list[str] = []

    def endless() -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            closed.append("closed")

    task = asyncio.create_task(in_slices(endless()))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert closed == ["closed"]
    assert await in_slices(counting("a", 2, [])) == 2
