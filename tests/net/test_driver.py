"""The driver over real timers, files and sockets, with one small machine that uses all three."""

import asyncio
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.net.disk_performer import DiskPerformer

from moorline.core.effects import (
    Append,
    CancelTimer,
    Effect,
    Event,
    Received,
    Send,
    SetTimer,
    Sync,
    Synced,
    TimerFired,
)
from moorline.core.machine import Machine
from moorline.errors import MachineError
from moorline.journal.disk import FileDisk
from moorline.limits import INBOX_EVENTS_MAX
from moorline.net.driver import Driver


class Ledger(Enum):
    OPEN = "open"


class LedgerMachine(Machine[Ledger]):
    """Writes every word it hears, and repeats it to its peer only when it is durable."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {}

    def __init__(self) -> None:
        super().__init__("ledger", Ledger.OPEN)
        self.words: list[bytes] = []

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event:
            case Received("bug", _):
                raise AssertionError("must never hear from bug")
            case Received(_, word):
                self.words.append(word)
                return [Append("ledger/words", word), Sync("ledger/words", len(self.words))]
            case Synced(_, upto):
                return [Send("peer", self.words[upto - 1])]
            case TimerFired(name):
                return [Send("peer", name)]
            case _:
                return [SetTimer("later", 10), SetTimer("never", 20), CancelTimer("never")]


class Start(Event, frozen=True):
    pass


class Wired:
    def __init__(self, folder: Path) -> None:
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.errors: asyncio.Queue[Exception] = asyncio.Queue()
        self.disk = DiskPerformer(FileDisk(folder))
        self.driver = Driver(
            LedgerMachine(),
            {Send: self.send, **self.disk.performers()},
            self.errors.put_nowait,
        )

    def send(self, effect: Send) -> None:
        self.sent.put_nowait(effect.message)

    async def next(self) -> Any:
        return await asyncio.wait_for(self.sent.get(), 10)


async def test_what_is_promised_is_on_disk_first_and_in_order(tmp_path: Path) -> None:
    wired = Wired(tmp_path)
    words = [b"%03d" % number for number in range(50)]
    for word in words:
        wired.driver.post(Received("peer", word))
    for place, word in enumerate(words):
        assert await wired.next() == word
        assert (tmp_path / "ledger/words").read_bytes()[place * 3 : place * 3 + 3] == word
    wired.disk.close()


async def test_timers_fire_once_unless_cancelled(tmp_path: Path) -> None:
    wired = Wired(tmp_path)
    wired.driver.post(Start())
    assert await wired.next() == "later"
    wired.driver.post(Start())
    assert await wired.next() == "later"
    assert wired.sent.empty()


async def test_a_mistake_closes_the_driver_and_tells_the_story(tmp_path: Path) -> None:
    wired = Wired(tmp_path)
    wired.driver.post(Start())
    wired.driver.post(Received("bug", b""))
    error = await wired.errors.get()
    assert isinstance(error, MachineError)
    assert "must never hear from bug" in str(error)
    assert "Start()" in str(error)
    assert wired.driver._interpreter._timers == {}


async def test_an_error_of_the_disk_reaches_the_owner(tmp_path: Path) -> None:
    wired = Wired(tmp_path)
    (tmp_path / "ledger").write_bytes(b"a file where a folder should be")
    wired.driver.post(Received("peer", b"x"))
    assert isinstance(await wired.errors.get(), OSError)


async def test_events_during_a_step_wait_for_its_end_and_are_bounded(tmp_path: Path) -> None:
    wired = Wired(tmp_path)
    seen: list[str] = []

    def reenter(effect: Send) -> None:
        if not seen:
            wired.driver.post(TimerFired("inner"))
        seen.append(effect.message)

    wired.driver._interpreter._performers = {Send: reenter}
    wired.driver.post(TimerFired("outer"))
    assert seen == ["outer", "inner"]

    def flood(_: Send) -> None:
        for _number in range(INBOX_EVENTS_MAX + 1):
            wired.driver.post(TimerFired("flood"))

    wired.driver._interpreter._performers = {Send: flood}
    wired.driver.post(TimerFired("start"))
    assert "inbox is full" in str(await wired.errors.get())


@pytest.mark.parametrize("times", [1, 3])
async def test_closing_is_final(tmp_path: Path, times: int) -> None:
    wired = Wired(tmp_path)
    wired.driver.post(Start())
    for _ in range(times):
        wired.driver.close()
    assert wired.driver._interpreter._timers == {}
