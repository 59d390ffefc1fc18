"""Room: client. Calls about queues, made at the node that has each queue: follows what a node says of homes.

    call ─► where its home was found before, or the first node ─ answer ─► the caller's
                        ▲                  │ Elsewhere: nothing was done there
                        └── its home ◄─────┘     at most REDIRECT_HOPS_MAX times

A redirect is what some node says, and no proof. Whom it may lead to is decided by `OpenHome`, and the node
there must greet with the home that was named. It hears the same proof of who we are as the first one, and
judges by its own rows. Decision: docs/decisions/0102-whom-a-client-follows.md.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, TypeVar, cast

from moorline.client.call_kinds import kind_of
from moorline.client.deadline import deadline_of
from moorline.client.staying import StayingLink
from moorline.core.backoff import pause_ms
from moorline.core.staying import Kind
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    Elsewhere,
    HomeAway,
    NotFound,
    OutcomeUnknown,
    Refused,
    Untrusted,
)
from moorline.ids import home_number
from moorline.limits import (
    CLIENT_RETURN_MS,
    CLIENT_RETURN_MS_MAX,
    HOMES_FOLLOWED_MAX,
    REDIRECT_HOPS_MAX,
)
from moorline.net.caller import Caller, Make, answered_by, answers_before
from moorline.wire.message import Answer, Failed, Message
from moorline.wire.queue import DescribeQueue

Reply = TypeVar("Reply", bound=Answer)
OpenHome = Callable[[Elsewhere], Awaitable[Caller]]
"""Connects to the home of a redirect; raises that one itself if it leads to nobody who is known."""


class QueueCallers:
    """The connection of a client, and those to the homes that it was led to."""

    def __init__(
        self, first: Caller | StayingLink, open_home: OpenHome, *, deadline_s: float | None = None
    ) -> None:
        self.first = first
        self._deadline_s = deadline_s
        self.opened: Callable[[Caller], object] = lambda _: None
        """Told of each connection to a home, before anything is asked there."""
        self._open_home = open_home
        self._callers: dict[str, Caller] = {}
        """By the names of homes."""
        self._homes: dict[bytes, str] = {}
        """By the numbers that the ids of queues end with."""
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def link(self) -> Caller | None:
        """The first connection as it is now."""
        return self.first.current if isinstance(self.first, StayingLink) else self.first

    @property
    def stays(self) -> bool:
        return isinstance(self.first, StayingLink)

    async def call(self, queue: bytes, make: Make, reply: type[Reply]) -> Reply:
        """One call about one queue, where it is."""
        return (await self.call_and_where(queue, make, reply))[0]

    async def call_and_where(
        self, queue: bytes, make: Make, reply: type[Reply]
    ) -> tuple[Reply, Caller]:
        """The same, with the connection by which it was answered: what is pushed comes by that one."""
        first = self.first
        if not self._callers or self._known(queue) is first:
            if isinstance(first, StayingLink):
                answers, by = await first.call_all_by([make])
            else:
                answers, by = await first.call_all([make]), first
            if not _leads_on(answers[0]):
                answer = answered_by(answers[0], reply)
                assert by is not None, "an answer that came by no connection"
                return answer, by
            # Nothing was done there.
        ((found, where),) = await self.call_all_and_where([(queue, make)])
        return answered_by(found, reply), where

    async def call_all(self, calls: Sequence[tuple[bytes, Make]]) -> list[Answer]:
        """Many at once, each with its queue; refusals are among the answers, in the order of the calls."""
        return (await self._asked(calls))[0]

    async def call_all_and_where(
        self, calls: Sequence[tuple[bytes, Make]]
    ) -> list[tuple[Answer, Caller]]:
        """The same, each with the connection by which it was answered."""
        return list(zip(*await self._asked(calls), strict=True))

    async def _asked(
        self, calls: Sequence[tuple[bytes, Make]]
    ) -> tuple[list[Answer], list[Caller]]:
        """The answers, and the connections by which they came."""
        self.first.check_loop()
        answers: list[Answer | None] = [None] * len(calls)
        callers: list[Caller | None] = [None] * len(calls)
        left = self._by_caller(calls)
        patience = Patience(deadline_of(self._deadline_s) if self.stays else 0.0)
        hop = 0
        while left:
            led: dict[Caller | StayingLink, list[int]] = {}
            away: list[int] = []
            for caller, places in left.items():
                made = [calls[place][1] for place in places]
                got, by = await self._made(caller, made, hop)
                for place, answer in zip(places, got, strict=True):
                    answers[place], callers[place] = answer, by
                    if type(answer) is not Failed and answer is not None:
                        continue
                    if answer is None:
                        led.setdefault(self.first, []).append(place)
                        continue
                    following = await self._following(calls[place], answer, caller, hop, patience)
                    if isinstance(following, Away):
                        away.append(place)
                    elif following is not None:
                        led.setdefault(following, []).append(place)
            left, hop = led, hop + 1
            if away:
                # Not a hop: nobody was led anywhere, and nothing was done.
                await patience.wait()
                left.setdefault(self.first, []).extend(away)
                hop = 0
        return cast("list[Answer]", answers), cast("list[Caller]", callers)

    def _by_caller(
        self, calls: Sequence[tuple[bytes, Make]]
    ) -> dict[Caller | StayingLink, list[int]]:
        """The places of calls by where they are asked first."""
        if not self._callers:
            return {self.first: list(range(len(calls)))} if calls else {}
        found: dict[Caller | StayingLink, list[int]] = {}
        for place, (queue, _) in enumerate(calls):
            found.setdefault(self._known(queue), []).append(place)
        return found

    async def _made(
        self, caller: Caller | StayingLink, made: Sequence[Make], hop: int
    ) -> tuple[Sequence[Answer | None], Caller]:
        """The answers of one node, and by which connection they came; None is to be asked from the start."""
        if isinstance(caller, StayingLink):
            answers, by = await caller.call_all_by(made)
            found = by or caller.current
            assert found is not None, "a client without any connection"
            return answers, found
        if not isinstance(self.first, StayingLink):
            return await caller.call_all(made), caller
        try:
            async with asyncio.timeout(deadline_of(self._deadline_s)) as within:
                return await caller.call_all(made), caller
        except (ConnectionLost, Refused) as error:
            return self._cut(error, made, hop), caller
        except TimeoutError:
            if not within.expired():
                raise
            text = "its deadline passed; it may have been done or not: look before you ask again"
            return [Failed(0, OutcomeUnknown.code, text)] * len(made), caller

    def _cut(
        self, error: ConnectionLost | Refused, made: Sequence[Make], hop: int
    ) -> list[Answer | None]:
        """The link to a home is gone: by the rules of core/staying.py."""
        before = answers_before(error)
        if hop < REDIRECT_HOPS_MAX and (before is None or kind_of(made) is Kind.QUESTION):
            return before or [None] * len(made)
        text = f"{error}: look before you ask again"
        doubt = Failed(0, OutcomeUnknown.code, text)
        return [answer or doubt for answer in before or [None] * len(made)]

    def _known(self, queue: bytes) -> Caller | StayingLink:
        home = self._homes.get(home_number(queue), "")
        caller = self._callers.get(home)
        return caller if caller is not None and caller.is_open else self.first

    async def _following(
        self,
        called: tuple[bytes, Make],
        answer: Answer,
        caller: Caller | StayingLink,
        hop: int,
        patience: "Patience",
    ) -> "Caller | StayingLink | Away | None":
        """Where it is to be asked instead, or that it is to be asked later; None if this is the answer."""
        if not _leads_on(answer):
            return None
        assert isinstance(answer, Failed)
        if answer.code == HomeAway.code and patience.is_left:
            return AWAY
        if answer.redirect is None or hop == REDIRECT_HOPS_MAX:
            return None
        told = answer.error()
        if not isinstance(told, Elsewhere):
            return None
        try:
            found = await self._at_home(told)
        except (ConnectionLost, AnotherHome) as error:
            if self.stays and not isinstance(error, Untrusted) and patience.is_left:
                # It was there a moment ago; whoever has its home now is told by the first node.
                return AWAY
            if isinstance(error, AnotherHome):
                return None
            raise
        except Elsewhere:
            return None  # to nobody who is known: the program is told
        if found is caller:
            return None  # it says of itself that it is somebody else
        queue, make = called
        if not isinstance(make(0), DescribeQueue):
            # By its id, and so for all ids that end like it. DESCRIBE also tells of exceptions.
            self._homes[home_number(queue)] = told.home
        return found

    @property
    def here(self) -> Caller:
        """The connection to the node that is asked first, as it is now."""
        if not isinstance(self.first, StayingLink):
            return self.first
        if self.first.current is None:
            raise ConnectionLost("there is no connection now; another one follows")
        return self.first.current

    async def at_home(self, told: Elsewhere) -> Caller:
        """The connection to the home of a redirect; raises that one if it leads to nobody who is known."""
        found = await self._at_home(told)
        return self.here if isinstance(found, StayingLink) else found

    async def _at_home(self, told: Elsewhere) -> Caller | StayingLink:
        if told.home not in self._locks and len(self._locks) >= HOMES_FOLLOWED_MAX:
            raise told
        async with self._locks.setdefault(told.home, asyncio.Lock()):
            for caller in (self.first, self._callers.get(told.home)):
                if caller is not None and caller.is_open and home_of(caller) == told.home:
                    return caller
            caller = await self._open_home(told)
            if home_of(caller) != told.home:
                caller.close("DONE", "another node was meant")
                raise AnotherHome(str(told), told.home, told.addresses)
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


class AnotherHome(Elsewhere):
    """Where a home was said to be answers another one: it has moved, and who led us is yet to hear of it."""


class Away(Enum):
    """That a home is nowhere just now, and a call about it is made again later."""

    AWAY = "away"


AWAY: Final = Away.AWAY


class Patience:
    """Of one call, with homes that no node serves now: until its deadline."""

    def __init__(self, seconds: float | None) -> None:
        self._ends_s = None if seconds is None else time.monotonic() + seconds
        self._tries = 0

    @property
    def is_left(self) -> bool:
        return self._ends_s is None or time.monotonic() < self._ends_s

    async def wait(self) -> None:
        wait_ms = pause_ms(
            self._tries, random.random(), first_ms=CLIENT_RETURN_MS, most_ms=CLIENT_RETURN_MS_MAX
        )
        self._tries += 1
        left_s = wait_ms if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())
        await asyncio.sleep(min(wait_ms / 1_000, left_s))


PASSING = frozenset(
    {HomeAway.code, "UNAVAILABLE", "NOT_READY", "IN_REPAIR", "OUTCOME_UNKNOWN", "INTERNAL"}
)
"""Refusals that say nothing against the reader of a queue: it comes back."""


class Coming:
    """How the reader of a queue comes back to it, connection after connection."""

    def __init__(self, callers: QueueCallers) -> None:
        self._callers = callers
        self._home = ""
        """Where the queue was read before."""
        self._tries = 0

    def here(self, caller: Caller) -> None:
        self._home, self._tries = home_of(caller), 0

    async def after(self, error: ConnectionLost | Refused | CallFailed) -> None:
        """Waits a moment, or raises what is the end."""
        first = self._callers.first
        if not isinstance(first, StayingLink) or first.is_over:
            raise error
        if isinstance(error, CallFailed) and error.code not in PASSING:
            # "Not found" is the word of a node that does not have it, as long as its home is away.
            is_away = isinstance(error, NotFound) and self._home not in ("", home_of(first))
            if not is_away:
                raise error
        wait_ms = pause_ms(
            self._tries, random.random(), first_ms=CLIENT_RETURN_MS, most_ms=CLIENT_RETURN_MS_MAX
        )
        self._tries += 1
        await asyncio.wait([first.lost], timeout=wait_ms / 1_000)


def _leads_on(answer: Answer) -> bool:
    """Whether a node said that somebody else is to be asked, or it again: nothing was done."""
    return isinstance(answer, Failed) and (
        answer.redirect is not None or answer.code == HomeAway.code
    )


def about(queue: bytes, kind: Callable[..., Message], *given: object) -> tuple[bytes, Make]:
    """A call of that kind about a queue, as `call_all` takes it."""

    def make(call: int) -> Message:
        return kind(call, queue, *given)

    return queue, make


def home_of(caller: Caller | StayingLink) -> str:
    return caller.node.home if caller.node is not None else ""
