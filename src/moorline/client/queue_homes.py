"""Room: client. Calls about queues, made at the node that has each queue: follows what a node says of homes.

    call ─► where its home was found before, or the first node ─ answer ─► the caller's
                        ▲                  │ Elsewhere: nothing was done there
                        └── its home ◄─────┘     at most REDIRECT_HOPS_MAX times

A redirect is what some node says, and no proof. Whom it may lead to is decided by `OpenHome`, and the node
there must greet with the home that was named. It hears the same proof of who we are as the first one, and
judges by its own rows. Decision: docs/decisions/0102-whom-a-client-follows.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from moorline.errors import Elsewhere, Malformed
from moorline.ids import home_number
from moorline.limits import HOMES_FOLLOWED_MAX, REDIRECT_HOPS_MAX
from moorline.net.caller import Caller, Make
from moorline.wire.message import Answer, Failed, Message
from moorline.wire.queue import DescribeQueue

Reply = TypeVar("Reply", bound=Answer)
OpenHome = Callable[[Elsewhere], Awaitable[Caller]]
"""Connects to the home of a redirect; raises that one itself if it leads to nobody who is known."""


class QueueCallers:
    """The connection of a client, and those to the homes that it was led to."""

    def __init__(self, first: Caller, open_home: OpenHome) -> None:
        self.first = first
        self.opened: Callable[[Caller], object] = lambda _: None
        """Told of each connection to a home, before anything is asked there."""
        self._open_home = open_home
        self._callers: dict[str, Caller] = {}
        """By the names of homes."""
        self._homes: dict[bytes, str] = {}
        """By the numbers that the ids of queues end with."""
        self._locks: dict[str, asyncio.Lock] = {}

    async def call(self, queue: bytes, make: Make, reply: type[Reply]) -> Reply:
        """One call about one queue, where it is."""
        return (await self.call_and_where(queue, make, reply))[0]

    async def call_and_where(
        self, queue: bytes, make: Make, reply: type[Reply]
    ) -> tuple[Reply, Caller]:
        """The same, with the connection by which it was answered: what is pushed comes by that one."""
        ((answer, caller),) = await self.call_all_and_where([(queue, make)])
        if isinstance(answer, Failed):
            raise answer.error()
        if not isinstance(answer, reply):
            raise Malformed(f"{type(answer).__name__} does not answer a call for {reply.__name__}")
        return answer, caller

    async def call_all(self, calls: Sequence[tuple[bytes, Make]]) -> list[Answer]:
        """Many at once, each with its queue; refusals are among the answers, in the order of the calls."""
        return [answer for answer, _ in await self.call_all_and_where(calls)]

    async def call_all_and_where(
        self, calls: Sequence[tuple[bytes, Make]]
    ) -> list[tuple[Answer, Caller]]:
        """The same, each with the connection by which it was answered."""
        self.first.check_loop()
        answers: list[tuple[Answer, Caller] | None] = [None] * len(calls)
        left: dict[Caller, list[int]] = {}
        for place, (queue, _) in enumerate(calls):
            left.setdefault(self._known(queue), []).append(place)
        for hop in range(REDIRECT_HOPS_MAX + 1):
            led: dict[Caller, list[int]] = {}
            for caller, places in left.items():
                made = [calls[place][1] for place in places]
                for place, answer in zip(places, await caller.call_all(made), strict=True):
                    following = await self._following(calls[place], answer, caller, hop)
                    if following is None:
                        answers[place] = (answer, caller)
                    else:
                        led.setdefault(following, []).append(place)
            left = led
        assert not left, "the last hop is answered, whatever the answer is"
        return [answer for answer in answers if answer is not None]

    def _known(self, queue: bytes) -> Caller:
        home = self._homes.get(home_number(queue), "")
        caller = self._callers.get(home)
        return caller if caller is not None and caller.is_open else self.first

    async def _following(
        self, called: tuple[bytes, Make], answer: Answer, caller: Caller, hop: int
    ) -> Caller | None:
        """Where it is to be asked instead; None if this is the answer."""
        if not isinstance(answer, Failed) or answer.redirect is None or hop == REDIRECT_HOPS_MAX:
            return None
        told = answer.error()
        if not isinstance(told, Elsewhere):
            return None
        try:
            found = await self.at_home(told)
        except Elsewhere:
            return None  # to nobody who is known: the program is told
        if found is caller:
            return None  # it says of itself that it is somebody else
        queue, make = called
        if not isinstance(make(0), DescribeQueue):
            # By its id, and so for all ids that end like it. DESCRIBE also tells of exceptions.
            self._homes[home_number(queue)] = told.home
        return found

    async def at_home(self, told: Elsewhere) -> Caller:
        """The connection to the home of a redirect; raises that one if it leads to nobody who is known."""
        if told.home not in self._locks and len(self._locks) >= HOMES_FOLLOWED_MAX:
            raise told
        async with self._locks.setdefault(told.home, asyncio.Lock()):
            for caller in (self.first, self._callers.get(told.home)):
                if caller is not None and caller.is_open and _home_of(caller) == told.home:
                    return caller
            caller = await self._open_home(told)
            if _home_of(caller) != told.home:
                caller.close("DONE", "another node was meant")
                raise told
            self.opened(caller)
            self._callers[told.home] = caller
            return caller

    def close(self) -> list["asyncio.Future[None]"]:
        """Says goodbye at the homes; what is done when it is out."""
        gone = []
        for caller in self._callers.values():
            caller.close("DONE", "the client is done")
            gone.append(caller.gone)
        self._callers.clear()
        return gone


def about(queue: bytes, kind: Callable[..., Message], *given: object) -> tuple[bytes, Make]:
    """A call of that kind about a queue, as `call_all` takes it."""

    def make(call: int) -> Message:
        return kind(call, queue, *given)

    return queue, make


def _home_of(caller: Caller) -> str:
    return caller.node.home if caller.node is not None else ""
