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
from moorline.wire.message import Answer, Failed

Reply = TypeVar("Reply", bound=Answer)


class Verdict(NamedTuple):
    """What the machine wants of an ask: a link to put it on, or its end."""

    caller: Caller | None = None
    is_doubt: bool = False
    why: str = ""


class Ask:
    __slots__ = ("has_left", "verdict")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.verdict: asyncio.Future[Verdict] = loop.create_future()
        self.has_left = False

    def begun(self) -> None:
        self.has_left = True

    def put(self, verdict: Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


class OnLink:
    """Calls that left at once, of which the machine knows nothing yet."""

    __slots__ = ("batch", "link", "makes", "must_arrive", "number")

    def __init__(
        self,
        link: "AskingLink",
        number: int,
        makes: Sequence[Make],
        batch: Batch,
        *,
        must_arrive: bool,
    ) -> None:
        self.link = link
        self.number = number
        self.makes = makes
        self.batch = batch
        self.must_arrive = must_arrive

    def end(self) -> None:
        """Their time has passed."""
        self.link.out_of_time(self)


class OutOfTime(Exception):
    """What ends the wait for calls whose time has passed."""


class AskingLink:
    """What can be asked; whoever has the machine, and the connections, is the link itself."""

    def __init__(self, asking: Staying, deadline_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._machine = asking
        self._deadline_s = deadline_s
        self._deadline = None if deadline_s is None else SharedDeadline(deadline_s)
        self._numbers = itertools.count(1)
        self._asks: dict[int, Ask] = {}
        """Those that the machine knows."""
        self._on_link: dict[int, OnLink] = {}
        """Those that it does not know: while it is up, in the order in which they were made."""
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
        if asyncio.get_running_loop() is not self._loop and self._caller is not None:
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
        deadline_s, caller = deadline_of(self._deadline_s), self._caller
        if caller is None or not self._leaves_at_once(caller, deadline_s):
            return await self._by_machine(
                makes, deadline_s, heard=heard, unheard=unheard, must_arrive=must_arrive
            )
        number, batch = next(self._numbers), caller.begin(makes, heard, unheard)
        on_link = OnLink(self, number, makes, batch, must_arrive=must_arrive)
        self._on_link[number] = on_link
        shared = self._deadline if deadline_s is not None else None
        ends_s = shared.begin(number, on_link) if shared is not None else None
        try:
            return await batch.done, caller
        except asyncio.CancelledError:
            caller.give_up(batch, must_arrive=must_arrive)
            raise
        except (ConnectionLost, Refused, OutOfTime) as error:
            return await self._interrupted(on_link, error, ends_s, heard=heard, unheard=unheard)
        finally:
            if shared is not None:
                shared.over(number)
            if self._on_link.pop(number, None) is None:
                self._withdraw(number)

    def _leaves_at_once(self, caller: Caller, deadline_s: float | None) -> bool:
        """Whether the machine would put a call on the link that is up, and that one would take it."""
        return (
            self._machine.state is StayState.UP
            and caller.has_room
            and (deadline_s is None or deadline_s == self._deadline_s)
            and len(self._on_link) + len(self._machine) < CLIENT_ASKS_MAX
        )

    async def _interrupted(
        self,
        on_link: OnLink,
        error: ConnectionLost | Refused | OutOfTime,
        ends_s: float | None,
        *,
        heard: Heard | None,
        unheard: Heard | None,
    ) -> tuple[list[Answer], Caller | None]:
        """What becomes of calls whose link was lost, or whose time has passed. The machine knows of them by
        now, since it was told of that."""
        number, makes = on_link.number, on_link.makes
        ask = self._asks[number]
        if isinstance(error, OutOfTime):
            return self._ended(ask.verdict.result(), [None] * len(makes)), None
        answers = answers_before(error) or [None] * len(makes)
        left_s = None if ends_s is None else max(0.0, ends_s - self._loop.time())
        going_on = self._answered(
            ask, makes, answers, heard=heard, unheard=unheard, must_arrive=on_link.must_arrive
        )
        verdict = await self._answered_within(left_s, going_on, number, ask)
        return self._ended(verdict, answers), verdict.caller

    def out_of_time(self, on_link: OnLink) -> None:
        """Of calls that left at once. Those that have met the end of their link have a timer of their own."""
        batch, caller = on_link.batch, self._caller
        if batch.done.done():
            return
        assert caller is not None, "there is a link as long as calls are on it"
        self._tell()
        self._post(machine.DeadlinePassed(on_link.number))
        caller.give_up(batch, must_arrive=on_link.must_arrive)
        batch.done.set_exception(OutOfTime())

    def _tell(self) -> None:
        """The machine hears of the calls that left without it, before it hears of what concerns them. It
        puts them on the link that is up, where they are."""
        on_link, self._on_link = self._on_link, {}
        for number, one in on_link.items():
            self._post(machine.Asked(number, kind_of(one.makes)))
            ask = self._asks[number] = Ask(self._loop)
            ask.begun()

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
