"""Room: client. The calls of a program over a link that stays.

Nearly all calls find the link up, and are answered by it. Such a call leaves without a word to the machine
(core/staying.py), which would only put it on that link: it is told of those that are still unanswered when
something happens to them: a loss, a deadline, the end, or another call that has to wait. That is before the
machine hears of what happened, and in the order in which they were made (`_tell`).

    call ─ up ─► on the link ─ answers ─► the program
      │              │ something happens
      ▼              ▼
      known to the machine ─ Put, Doubt, Refuse ─► a verdict: on a link, or its end
"""

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from moorline.client.call_kinds import kind_of
from moorline.client.deadline import SharedDeadline, deadline_of
from moorline.config.addresses import Address
from moorline.core import staying as machine
from moorline.core.effects import Event
from moorline.core.staying import Staying, StayState
from moorline.errors import ConnectionLost, OutcomeUnknown, Refused, Unreachable
from moorline.limits import CLIENT_ASKS_MAX
from moorline.net.caller import Batch, Caller, Heard, Make, answered_by, answers_before
from moorline.net.own_loop import OwnLoop
from moorline.wire.message import Answer, Failed

Reply = TypeVar("Reply", bound=Answer)


class Verdict(NamedTuple):
    """What the machine wants of an ask: a link to put it on, or its end."""

    caller: Caller | None = None
    is_doubt: bool = False
    why: str = ""


OnLink = tuple[Sequence[Make], Batch, bool]
"""Calls that left at once, of which the machine knows nothing yet: how to make them, the answers so far, and
whether they must arrive."""


class Ask:
    __slots__ = ("has_left", "left", "verdict")

    def __init__(self, loop: asyncio.AbstractEventLoop, left: OnLink | None = None) -> None:
        """`left` is what left at once, before the machine knew of it."""
        self.verdict: asyncio.Future[Verdict] = loop.create_future()
        self.left = left
        self.has_left = left is not None

    def begun(self) -> None:
        self.has_left = True

    def put(self, verdict: Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


class OutOfTime(Exception):
    """What ends the wait for calls whose time has passed."""


class AskingLink:
    """What can be asked; whoever has the machine, and the connections, is the link itself."""

    def __init__(self, asking: Staying, deadline_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._own_loop = OwnLoop()
        self._machine = asking
        self._deadline_s = deadline_s
        self._deadline = (
            None if deadline_s is None else SharedDeadline(deadline_s, self._end_in_time)
        )
        self._numbers = itertools.count(1)
        self._asks: dict[int, Ask] = {}
        """Those that the machine knows."""
        self._on_link: dict[int, OnLink] = {}
        """Those that it does not know: while it is up, in the order in which they were made."""
        self._up: Caller | None = None
        """The connection by which calls leave at once, as long as the machine is up."""
        self._caller: Caller | None = None
        self._why: Exception | None = None
        """What the last dial that led to nobody met."""
        self.address: Address | None = None
        self.lost: asyncio.Future[ConnectionLost | Refused] = self._loop.create_future()
        """Done when it is over for good."""

    @property
    def is_open(self) -> bool:
        return self._machine.state is StayState.UP

    def check_loop(self) -> None:
        if not self._own_loop.is_here and self._caller is not None:
            self._caller.check_loop()

    def _post(self, event: Event) -> None:
        raise NotImplementedError

    async def call(
        self,
        make: Make,
        reply: type[Reply],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
    ) -> Reply:
        (answer,), _ = await self.call_all_by(
            [make], heard=heard, unheard=unheard, must_arrive=must_arrive
        )
        return answered_by(answer, reply)

    async def call_all(
        self,
        makes: Sequence[Make],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
    ) -> list[Answer]:
        """As of a connection. What is in doubt is among the answers, as OUTCOME_UNKNOWN."""
        answers, _ = await self.call_all_by(
            makes, heard=heard, unheard=unheard, must_arrive=must_arrive
        )
        return answers

    async def call_all_by(
        self,
        makes: Sequence[Make],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
    ) -> tuple[list[Answer], Caller | None]:
        """The same, with the connection by which the last of them was answered; None if none was."""
        self.check_loop()
        if not makes:
            return [], self._caller
        deadline_s, caller, shared = deadline_of(self._deadline_s), self._up, self._deadline
        if (
            caller is None
            or not caller.has_room
            or (deadline_s is not None and deadline_s != self._deadline_s)
            or len(self._on_link) + len(self._asks) >= CLIENT_ASKS_MAX
        ):
            return await self._by_machine(
                makes, deadline_s, heard=heard, unheard=unheard, must_arrive=must_arrive
            )
        number, batch = next(self._numbers), caller.begin(makes, heard, unheard)
        self._on_link[number] = (makes, batch, must_arrive)
        if deadline_s is None:
            shared = None
        ends_s = shared.begin(number) if shared is not None else None
        try:
            return await batch.done, caller
        except asyncio.CancelledError:
            caller.give_up(batch, must_arrive=must_arrive)
            raise
        except (ConnectionLost, Refused, OutOfTime) as error:
            answered = self._interrupted(
                number, error, ends_s, makes, heard=heard, unheard=unheard, must_arrive=must_arrive
            )
            return await answered
        finally:
            if shared is not None:
                shared.over(number)
            if self._on_link.pop(number, None) is None:
                self._withdraw(number)

    async def _interrupted(
        self,
        number: int,
        error: ConnectionLost | Refused | OutOfTime,
        ends_s: float | None,
        makes: Sequence[Make],
        *,
        heard: Heard | None,
        unheard: Heard | None,
        must_arrive: bool,
    ) -> tuple[list[Answer], Caller | None]:
        """What becomes of calls whose link was lost, or whose time has passed. The machine knows of them by
        now, since it was told of that."""
        ask = self._asks[number]
        if isinstance(error, OutOfTime):
            return self._ended(ask.verdict.result(), [None] * len(makes)), None
        answers = answers_before(error) or [None] * len(makes)
        left_s = None if ends_s is None else max(0.0, ends_s - self._loop.time())
        going_on = self._answered(
            ask, makes, answers, heard=heard, unheard=unheard, must_arrive=must_arrive
        )
        verdict = await self._answered_within(left_s, going_on, number, ask)
        return self._ended(verdict, answers), verdict.caller

    def _end_in_time(self, number: int) -> None:
        """The time of calls that left at once has passed. Those that have met the end of their link have a
        timer of their own."""
        self._tell()
        left, caller = self._asks[number].left, self._caller
        assert left is not None, f"{number} has a timer of its own"
        _, batch, must_arrive = left
        if batch.done.done():
            return
        assert caller is not None, "there is a link as long as calls are on it"
        self._post(machine.DeadlinePassed(number))
        caller.give_up(batch, must_arrive=must_arrive)
        batch.done.set_exception(OutOfTime())

    def _tell(self) -> None:
        """The machine hears of the calls that left without it, before it hears of what concerns them. It
        puts them on the link that is up, where they are."""
        on_link, self._on_link = self._on_link, {}
        for number, left in on_link.items():
            self._post(machine.Asked(number, kind_of(left[0])))
            self._asks[number] = Ask(self._loop, left)

    async def _by_machine(
        self,
        makes: Sequence[Make],
        deadline_s: float | None,
        *,
        heard: Heard | None,
        unheard: Heard | None,
        must_arrive: bool,
    ) -> tuple[list[Answer], Caller | None]:
        """Calls that may have to wait, or that have another time than most."""
        self._tell()
        number, ask = next(self._numbers), Ask(self._loop)
        self._asks[number] = ask
        answers: list[Answer | None] = [None] * len(makes)
        try:
            self._post(machine.Asked(number, kind_of(makes)))
            asked = self._answered(
                ask, makes, answers, heard=heard, unheard=unheard, must_arrive=must_arrive
            )
            verdict = await self._answered_within(deadline_s, asked, number, ask)
        finally:
            self._withdraw(number)
        return self._ended(verdict, answers), verdict.caller

    def _withdraw(self, number: int) -> None:
        del self._asks[number]
        self._post(machine.Withdrawn(number))

    async def _answered_within(
        self,
        deadline_s: float | None,
        asked: Coroutine[Any, Any, Verdict],
        number: int,
        ask: Ask,
    ) -> Verdict:
        try:
            async with asyncio.timeout(deadline_s) as within:
                return await asked
        except TimeoutError:
            if not within.expired():
                raise
            return self._out_of_time(number, ask)

    def _out_of_time(self, number: int, ask: Ask) -> Verdict:
        before = ask.verdict
        # Whoever waited for it was cancelled by the time limit, and it with them.
        if before.done() and not before.cancelled() and before.result().caller is None:
            return before.result()  # it had ended just before
        ask.verdict = self._loop.create_future()
        self._post(machine.DeadlinePassed(number))
        return ask.verdict.result()

    async def _answered(
        self,
        ask: Ask,
        makes: Sequence[Make],
        answers: list[Answer | None],
        *,
        heard: Heard | None,
        unheard: Heard | None,
        must_arrive: bool,
    ) -> Verdict:
        """Puts it on one link after the other, as the machine says, until all is answered or it ends."""
        while True:
            verdict = await ask.verdict
            if verdict.caller is None:
                return verdict
            # At once: what the machine says of it from now on is about what comes behind this link.
            ask.verdict, ask.has_left = self._loop.create_future(), False
            places = [place for place, answer in enumerate(answers) if answer is None]
            try:
                got: Sequence[Answer | None] = await verdict.caller.call_all(
                    [makes[place] for place in places],
                    heard=heard,
                    unheard=unheard,
                    must_arrive=must_arrive,
                    begun=ask.begun,
                )
            except (ConnectionLost, Refused) as error:
                got = answers_before(error) or [None] * len(places)
            for place, answer in zip(places, got, strict=True):
                answers[place] = answer
            if None not in got:
                return verdict

    def _ended(self, verdict: Verdict, answers: list[Answer | None]) -> list[Answer]:
        if verdict.caller is None and not verdict.is_doubt:
            if self.lost.done():
                raise self.lost.result()
            raise Unreachable(
                f"{self._where()}: {verdict.why}: it was not sent, or changes nothing"
            )
        text = f"{verdict.why}; it may have been done or not: look before you ask again"
        return [
            Failed(0, OutcomeUnknown.code, text) if answer is None else answer for answer in answers
        ]

    def _where(self) -> str:
        return str(self._why) if self._why is not None and not self.is_open else str(self.address)
