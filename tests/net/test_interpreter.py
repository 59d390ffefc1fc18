"""The interpreter: effects in order, timers by name, in turn for those who wait, by a table for the many."""

import asyncio
import re
from pathlib import Path

import pytest

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.net.interpreter import Interpreter, TableInterpreter, TablePerformer, nothing_awaited

SOURCE = Path(__file__).parents[2] / "src" / "moorline"
MAY_NAME_TIMERS = ("core/", "net/interpreter.py", "testing/")


class Say(Effect, frozen=True):
    word: str


class Owner:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard: asyncio.Queue[Event] = asyncio.Queue()
        self.interpreter = TableInterpreter(self, TABLE, self.heard.put_nowait)

    def say(self, effect: Say) -> None:
        self.said.append(effect.word)
        if effect.word == "end":
            self.interpreter.close()


TABLE: dict[type[Effect], TablePerformer] = {Say: Owner.say}


def test_nobody_else_knows_timers_by_name() -> None:
    """Whoever performed them by itself would cancel the wrong one, or none."""
    elsewhere = [
        name
        for path in SOURCE.rglob("*.py")
        if not (name := path.relative_to(SOURCE).as_posix()).startswith(MAY_NAME_TIMERS)
        and re.search(r"\b(Set|Cancel)Timer\b", path.read_text(encoding="utf-8"))
    ]
    assert not elsewhere, "use net/interpreter.py"


async def test_the_owner_of_a_table_performs_in_order_and_hears_its_timers() -> None:
    owner = Owner()
    owner.interpreter.perform([Say("a"), SetTimer("soon", 1), Say("b")])
    assert owner.said == ["a", "b"]
    assert await asyncio.wait_for(owner.heard.get(), 10) == TimerFired("soon")


async def test_behind_its_end_an_owner_performs_nothing_and_hears_nothing() -> None:
    owner = Owner()
    owner.interpreter.perform([SetTimer("soon", 0), Say("a"), Say("end"), Say("b")])
    owner.interpreter.perform([Say("c"), SetTimer("soon", 0)])
    assert owner.said == ["a", "end"]
    other = Owner()
    other.interpreter.perform([SetTimer("later", 0)])
    assert await asyncio.wait_for(other.heard.get(), 10) == TimerFired("later")
    assert owner.heard.empty(), "its timer was older than the other's"


async def test_a_timer_that_is_set_again_fires_once_and_one_that_is_cancelled_never() -> None:
    owner = Owner()
    owner.interpreter.perform(
        [SetTimer("a", 0), SetTimer("b", 0), SetTimer("a", 1), CancelTimer("b"), CancelTimer("c")]
    )
    assert await asyncio.wait_for(owner.heard.get(), 10) == TimerFired("a")
    owner.interpreter.perform([SetTimer("last", 0)])
    assert await asyncio.wait_for(owner.heard.get(), 10) == TimerFired("last")
    assert owner.heard.empty()


async def test_in_turn_one_effect_is_over_before_the_next_begins() -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def slowly(effect: Say) -> None:
        order.append(f"{effect.word} begins")
        if effect.word == "a":
            await gate.wait()
        order.append(f"{effect.word} ends")

    interpreter = Interpreter({Say: slowly}, _nobody, nothing_awaited)
    task = asyncio.ensure_future(
        interpreter.perform_in_turn([Say("a"), SetTimer("x", 60_000), Say("b")])
    )
    while not order:
        await asyncio.sleep(0)
    gate.set()
    await task
    assert order == ["a begins", "a ends", "b begins", "b ends"]
    interpreter.close()


async def test_what_failed_in_turn_ends_the_list() -> None:
    async def fails(effect: Say) -> None:
        raise OSError(effect.word)

    interpreter = Interpreter({Say: fails}, _nobody, nothing_awaited)
    with pytest.raises(OSError, match="a"):
        await interpreter.perform_in_turn([Say("a"), Say("b")])


def _nobody(event: Event) -> None:
    raise AssertionError(f"nobody waits for {event}")
