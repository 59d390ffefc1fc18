"""Those who wait while a checkpoint empties the log: in order, by the step, and never for nothing."""

import asyncio
from typing import Any

from moorline.queues.paced_senders import PacedSenders

ASKED_MORE = 4
"""Looks at whether somebody may go on, in which nobody did."""


class Sender:
    """As much of a session as is held: it has so many steps at hand, and notes each."""

    def __init__(self, name: str, steps: int, log: list[str]) -> None:
        self.name, self.steps, self.log = name, steps, log
        self.paced: PacedSenders | None = None

    def hold_work(self, reason: str) -> None:
        assert reason

    def release_work(self, reason: str) -> bool:
        assert reason
        if self.steps:
            asyncio.get_running_loop().call_soon(self.step)
        return bool(self.steps)

    def step(self) -> None:
        assert self.paced is not None
        self.steps -= 1
        self.log.append(self.name)
        session: Any = self
        self.paced.hold_if_ahead(session)


async def test_as_many_go_on_as_there_is_room_for_one_step_each_in_their_order() -> None:
    log: list[str] = []
    room = asked = 0

    def is_ahead() -> bool:
        nonlocal asked
        asked += 1
        return len(log) >= room

    async def until_nobody_goes_on() -> None:
        enough = asked + ASKED_MORE
        while asked < enough or len(log) < room:
            await asyncio.sleep(0)

    paced = PacedSenders(is_ahead)
    senders: list[Any] = [Sender(name, 2, log) for name in "abc"]
    for sender in senders:
        sender.paced = paced
        paced.hold_if_ahead(sender)
    await until_nobody_goes_on()
    assert log == []
    room = 2
    await until_nobody_goes_on()
    assert log == ["a", "b"], "the third one has no room"
    room = 4
    await until_nobody_goes_on()
    assert log[:3] == ["a", "b", "c"]
    assert len(log) == 4


async def test_all_go_on_when_nobody_has_to_wait() -> None:
    log: list[str] = []
    asked, ahead = 0, True

    def is_ahead() -> bool | None:
        nonlocal asked
        asked += 1
        return ahead or None

    paced = PacedSenders(is_ahead)
    senders: list[Any] = [Sender(name, 1, log) for name in "abc"]
    for sender in senders:
        sender.paced = paced
        paced.hold_if_ahead(sender)
    own = asyncio.create_task(paced.turn())
    while asked < 4 + ASKED_MORE:
        await asyncio.sleep(0)
    assert (log, own.done()) == ([], False)
    ahead = False
    await own
    while len(log) < 3:
        await asyncio.sleep(0)
    assert log == ["a", "b", "c"]
