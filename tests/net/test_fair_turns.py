"""Turns among principals, as connections have them: the line itself, and sessions that stand in it."""

import asyncio
import random
import time

import pytest

from moorline.core.access.principal_turns import TURNS_PER_ROUND_MAX
from moorline.limits import CROWDED_POLL_US
from moorline.net import thread_turns
from moorline.net.fair_turns import FairTurns


class Standing:
    """A connection that does a portion of its work in each turn, and says whose turn it was."""

    def __init__(self, line: FairTurns, principal: str, told: list[str]) -> None:
        self.line = line
        self.principal = principal
        self.told = told
        self.kept: list[bytes] = []
        self.left = 0
        self.is_aborted = False
        line.enter(self, principal)

    def hear(self, data: bytes) -> None:
        self.left = data[0]
        self._work()

    def keep(self, data: bytes) -> None:
        self.kept.append(data)

    def take_turn(self) -> None:
        if self.kept:
            self.left = self.kept.pop(0)[0]
        self._work()

    def abort(self) -> None:
        self.is_aborted = True

    def _work(self) -> None:
        if self.left == 255:
            raise ValueError("a mistake")
        self.told.append(self.principal)
        self.left -= 1
        if self.left > 0:
            self.line.wait(self)


async def idle(line: FairTurns) -> None:
    async with asyncio.timeout(10):
        while len(line):
            await asyncio.sleep(0)


async def test_one_principal_is_no_crowd_and_two_are() -> None:
    line, told = FairTurns(), list[str]()
    alice = Standing(line, "alice", told)
    again = Standing(line, "alice", told)
    assert not line.is_crowded
    bob = Standing(line, "bob", told)
    assert line.is_crowded
    assert line.principals == 2
    line.leave(bob)
    assert not line.is_crowded
    line.leave(alice)
    line.leave(again)
    assert line.principals == 0


async def test_a_thousand_connections_of_one_are_one_in_the_line() -> None:
    line, told = FairTurns(), list[str]()
    flood = [Standing(line, "flood", told) for _ in range(1_000)]
    single = Standing(line, "single", told)
    for one in flood:
        line.heard(one, bytes([200]))
    before = len(told)
    assert before <= TURNS_PER_ROUND_MAX, "what is done at once is bounded too"
    line.heard(single, b"\x01")
    async with asyncio.timeout(10):
        while "single" not in told:
            await asyncio.sleep(0)
    assert told.index("single") - before <= TURNS_PER_ROUND_MAX
    for one in (*flood, single):
        line.leave(one)
    assert not line.is_crowded


async def test_who_comes_when_nobody_waits_has_its_turn_at_once() -> None:
    line, told = FairTurns(), list[str]()
    alice, bob = Standing(line, "alice", told), Standing(line, "bob", told)
    line.heard(alice, b"\x01")
    line.heard(bob, b"\x01")
    assert told == ["alice", "bob"]
    for one in (alice, bob):
        line.leave(one)


async def test_kept_bytes_come_before_those_that_follow_also_when_others_leave() -> None:
    line, told = FairTurns(), list[str]()
    alice, bob = Standing(line, "alice", told), Standing(line, "bob", told)
    line.heard(bob, b"\x09")
    line.heard(alice, b"\x01")
    assert alice.kept
    line.leave(bob)
    assert line.is_crowded, "as long as somebody waits"
    await idle(line)
    assert told[-1] == "alice"
    await asyncio.sleep(0)
    assert not line.is_crowded
    line.leave(alice)


async def test_one_that_fails_in_its_turn_is_cut_and_the_others_go_on() -> None:
    line, told = FairTurns(), list[str]()
    alice, bob = Standing(line, "alice", told), Standing(line, "bob", told)
    line.heard(alice, b"\x05")
    line.heard(bob, bytes([255]))
    await idle(line)
    assert bob.is_aborted
    assert told == ["alice"] * 5
    for one in (alice, bob):
        line.leave(one)


@pytest.mark.parametrize("seed", range(30))
async def test_whoever_comes_and_goes_nothing_is_left_waiting(seed: int) -> None:
    line, told, chance = FairTurns(), list[str](), random.Random(seed)
    there: list[Standing] = []
    wanted = 0
    for _ in range(300):
        match chance.randrange(4):
            case 0:
                there.append(Standing(line, f"p{chance.randrange(4)}", told))
            case 1 if there:
                one = there.pop(chance.randrange(len(there)))
                wanted -= one.left + sum(data[0] for data in one.kept)
                line.leave(one)
            case 2 if there:
                one = chance.choice(there)
                if not one.kept and one.left <= 0:
                    amount = chance.randrange(1, 5)
                    wanted += amount
                    if line.is_crowded:
                        line.heard(one, bytes([amount]))
                    else:
                        one.hear(bytes([amount]))
            case _:
                await asyncio.sleep(0)
    await idle(line)
    assert len(told) == wanted
    for one in there:
        line.leave(one)
    assert not line.is_crowded


async def test_threads_have_quick_turns_as_long_as_it_is_crowded() -> None:
    line, told = FairTurns(), list[str]()
    before = thread_turns._holders
    both = Standing(line, "alice", told), Standing(line, "bob", told)
    assert thread_turns._holders == before + 1
    for one in both:
        line.leave(one)
    assert thread_turns._holders == before


async def test_few_turns_are_given_before_the_loop_polls() -> None:
    """What turns leave to be done behind them must not add up: a call passes the loop several times."""
    line, told = FairTurns(), list[str]()

    class Busy(Standing):
        def take_turn(self) -> None:
            ends_ns = time.monotonic_ns() + CROWDED_POLL_US * 500
            while time.monotonic_ns() < ends_ns:
                pass
            super().take_turn()

    busy = Busy(line, "busy", told)
    other = Standing(line, "other", told)
    line._at_once_us = 0
    line.heard(busy, bytes([20]))
    before = 0
    while len(line):
        await asyncio.sleep(0)
        # Half of the time each: two, whatever else the machine does.
        assert len(told) - before <= 2
        before = len(told)
    assert told == ["busy"] * 20
    for one in (busy, other):
        line.leave(one)
