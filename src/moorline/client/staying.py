"""Room: client. `StayingLink`: one connection after the other, that looks like one which is never lost.

The rules are those of `core/staying.py`; here they are performed: dials, calls, timers. What was subscribed
is brought back by whoever has it, in `resume`. Design: docs/design/client.md.

    ask ─► machine ─ Put ─► call on the link that is up ─ answers ─► the program
              ▲                     │ lost
              └── put again, doubted or refused ◄──────┘
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from moorline.client.call_kinds import kind_of
from moorline.client.deadline import SharedDeadline, deadline_of
from moorline.client.events import ClientEvent, EventKind, Told
from moorline.client.role_dial import Dial
from moorline.config.addresses import Address
from moorline.core import staying as machine
from moorline.core.effects import Effect, Event
from moorline.core.staying import Staying, StayState
from moorline.errors import (
    CertificateRefused,
    ConfigError,
    ConnectionLost,
    MoorlineError,
    OutcomeUnknown,
    Refused,
    Unreachable,
    Untrusted,
)
from moorline.net.caller import Caller, Heard, Make, answered_by, answers_before
from moorline.net.clock import monotonic_ms
from moorline.net.interpreter import Interpreter, Performer, nothing_awaited
from moorline.net.tasks import Tasks
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Failed, Message

log = logging.getLogger("moorline.client")

Reply = TypeVar("Reply", bound=Answer)

AUTH = "AUTH"


class Verdict(NamedTuple):
    """What the machine wants of an ask: a link to put it on, or its end."""

    caller: Caller | None = None
    is_doubt: bool = False
    why: str = ""


class _Ask:
    __slots__ = ("has_left", "verdict")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.verdict: asyncio.Future[Verdict] = loop.create_future()
        self.has_left = False

    def begun(self) -> None:
        self.has_left = True

    def put(self, verdict: Verdict) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)


class Over(ConnectionLost):
    """The client is closed."""


class StayingLink:
    """Made for one event loop; `begin` connects for the first time."""

    def __init__(
        self,
        dials: Sequence[Dial],
        *,
        told: Told | None = None,
        deadline_s: float | None = None,
        name: str = "the client's link",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._dials = dials
        self._machine = Staying(name, len(dials), random.Random())
        self._told = told
        self._deadline_s = deadline_s
        self._deadline = None if deadline_s is None else SharedDeadline(deadline_s)
        self._tasks = Tasks("a link that stays has failed")
        self._numbers = itertools.count(1)
        self._asks: dict[int, _Ask] = {}
        self._caller: Caller | None = None
        self._reached: dict[int, Caller] = {}
        self._interpreter = Interpreter(self._performers(), self._post, nothing_awaited)
        self._settled = asyncio.Event()
        self._why: Exception | None = None
        """What the last dial that led to nobody met."""
        self.address: Address | None = None
        self.home_wanted = ""
        """Only the node of this home will do."""
        self.pushed: Callable[[list[Message]], None] | None = None
        self.lost: asyncio.Future[ConnectionLost | Refused] = self._loop.create_future()
        """Done when it is over for good."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.resume: Callable[[Caller, bool], Awaitable[None]] = _nothing
        """Brings back what the program had; the first time nothing."""
        self.cut: Callable[[Caller], object] = _nothing_sync
        """Told of each link that is gone."""
        self.borrowed: Callable[[Caller], bool] = _is_ours
        """Whether a link is another's, who closes it."""

    # --- what the program asks --------------------------------------------------------------------

    async def begin(self, *, stays: bool = False) -> None:
        """Connects, or raises why nobody could be reached; whoever is cancelled leaves nothing behind."""
        self._post(machine.Begin(stays))
        try:
            await self.settled()
        except BaseException:
            self.close("DONE", "nobody waits for it")
            raise
        if self.lost.done():
            raise self._why if self._why is not None else self.lost.result()

    def start(self) -> None:
        """The same, and nobody waits for it: whoever asks something does."""
        self._post(machine.Begin(stays=True))

    async def settled(self) -> None:
        """Waits until it is up, or over."""
        await self._settled.wait()

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
        number, ask = next(self._numbers), _Ask(self._loop)
        self._asks[number] = ask
        answers: list[Answer | None] = [None] * len(makes)
        deadline_s, shared = deadline_of(self._deadline_s), self._deadline
        if shared is not None and deadline_s != self._deadline_s:
            shared = None
        try:
            self._post(machine.Asked(number, kind_of(makes)))
            asked = self._answered(
                ask, makes, answers, heard=heard, unheard=unheard, must_arrive=must_arrive
            )
            if shared is not None:
                within = shared.begin(number)
                try:
                    with within:
                        verdict = await asked
                except TimeoutError:
                    if not within.has_passed:
                        raise
                    verdict = self._out_of_time(number, ask)
            else:
                verdict = await self._answered_within(deadline_s, asked, number, ask)
        finally:
            if shared is not None:
                shared.end(number)
            del self._asks[number]
            self._post(machine.Withdrawn(number))
        return self._ended(verdict, answers), verdict.caller

    async def _answered_within(
        self,
        deadline_s: float | None,
        asked: Coroutine[Any, Any, Verdict],
        number: int,
        ask: _Ask,
    ) -> Verdict:
        """Of a call that has another time than most, or none."""
        try:
            async with asyncio.timeout(deadline_s) as within:
                return await asked
        except TimeoutError:
            if not within.expired():
                raise
            return self._out_of_time(number, ask)

    def _out_of_time(self, number: int, ask: _Ask) -> Verdict:
        before = ask.verdict
        # Whoever waited for it was cancelled by the time limit, and it with them.
        if before.done() and not before.cancelled() and before.result().caller is None:
            return before.result()  # it had ended just before
        ask.verdict = self._loop.create_future()
        self._post(machine.DeadlinePassed(number))
        return ask.verdict.result()

    async def _answered(
        self,
        ask: _Ask,
        makes: Sequence[Make],
        answers: list[Answer | None],
        *,
        heard: Heard | None,
        unheard: Heard | None,
        must_arrive: bool,
    ) -> Verdict:
        """Puts it on one link after the other, as the machine says, until all is answered or it ends."""
        is_again = False
        while True:
            verdict = await ask.verdict
            if verdict.caller is None:
                return verdict
            # At once: what the machine says of it from now on is about what comes behind this link.
            ask.verdict, ask.has_left = self._loop.create_future(), False
            places: Sequence[int] = range(len(makes))
            some = makes
            if is_again:
                places = [place for place, answer in enumerate(answers) if answer is None]
                some = [makes[place] for place in places]
            is_again = True
            try:
                got: Sequence[Answer | None] = await verdict.caller.call_all(
                    some,
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

    def cast(self, make: Make, heard: Heard | None = None) -> None:
        """A call that nobody waits for; without a link nobody hears it."""
        if self._caller is not None and self._caller.is_open:
            self._caller.cast(make, heard)

    def check_loop(self) -> None:
        if self._caller is not None:
            self._caller.check_loop()

    @property
    def is_open(self) -> bool:
        return self._machine.state is StayState.UP

    @property
    def is_over(self) -> bool:
        return self._machine.state is StayState.OVER

    @property
    def node(self) -> Welcome | None:
        return self._caller.node if self._caller is not None else None

    @property
    def current(self) -> Caller | None:
        """The link that there is now, also while it resumes."""
        return self._caller

    def close(self, code: str, text: str) -> None:  # noqa: ARG002 - as of a connection
        """Ends it for good, with a goodbye."""
        self._post(machine.Leave(text))

    # --- the machine ------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        self._interpreter.perform(self._machine.handle(event, monotonic_ms()))

    def _performers(self) -> dict[type[Effect], Performer]:
        return {
            machine.Put: self._put,
            machine.Doubt: lambda of: self._verdict(of.number, Verdict(None, True, of.why)),
            machine.Refuse: lambda of: self._verdict(of.number, Verdict(None, False, of.why)),
            machine.Dial: self._begin_dial,
            machine.Resume: self._begin_resume,
            machine.Hang: self._hang,
            machine.TellUp: self._tell_up,
            machine.TellLost: self._tell_lost,
            machine.TellNobody: self._tell_nobody,
            machine.TellOver: self._over,
        }

    def _put(self, effect: machine.Put) -> None:
        self._verdict(effect.number, Verdict(self._caller))

    def _verdict(self, number: int, verdict: Verdict) -> None:
        ask = self._asks.get(number)
        if ask is not None:
            ask.put(verdict)

    def _tell_up(self, effect: machine.TellUp) -> None:
        self._settled.set()
        kind = EventKind.CONNECTED if effect.is_first else EventKind.RESUMED
        self._say(ClientEvent(kind, "", effect.home, self._last_address(), effect.is_elsewhere))

    def _tell_lost(self, effect: machine.TellLost) -> None:
        self._settled.clear()
        self._say(ClientEvent(EventKind.LOST, effect.why, "", self._last_address()))

    def _tell_nobody(self, effect: machine.TellNobody) -> None:
        self._say(ClientEvent(EventKind.NOBODY, effect.why, pause_ms=effect.pause_ms))

    def _last_address(self) -> str:
        return str(self.address) if self.address is not None else ""

    def _say(self, event: ClientEvent) -> None:
        if self._told is not None:
            self._told.tell(event)

    # --- links ------------------------------------------------------------------------------------

    def _begin_dial(self, effect: machine.Dial) -> None:
        self._tasks.spawn(self._dial(effect.attempt, self._dials[effect.place]))

    def _begin_resume(self, effect: machine.Resume) -> None:
        self._tasks.spawn(self._resume(effect.attempt, effect.is_first))

    async def _dial(self, attempt: int, dial: Dial) -> None:
        try:
            caller, address = await dial()
        except Exception as error:
            # Whatever it is: who waits for the first link is told that, and not left waiting.
            self._why = error
            self._post(machine.NotReached(attempt, str(error), is_final(error)))
            return
        home = caller.node.home if caller.node is not None else ""
        if self.is_over or (self.home_wanted and home != self.home_wanted):
            if not self.borrowed(caller):
                caller.close("DONE", "another node was meant")
            why = f"{address} is {home!r}, and {self.home_wanted!r} is meant"
            self._why = Unreachable(why)
            self._post(machine.NotReached(attempt, why))
            return
        self.address, self._caller, self._reached = address, caller, {attempt: caller}
        if not self.borrowed(caller):
            caller.pushed = partial(self._hear, caller)
        caller.lost.add_done_callback(lambda lost: self._lost(attempt, caller, lost.result()))
        self._post(machine.Reached(attempt, home))

    def _hear(self, caller: Caller, messages: list[Message]) -> None:
        # Of a link that is given up nothing is of interest any more.
        if caller is self._caller and self.pushed is not None:
            self.pushed(messages)

    def _lost(self, attempt: int, caller: Caller, why: ConnectionLost | Refused) -> None:
        if caller is not self._caller:
            return
        self._why = why
        self.cut(caller)
        unsent = tuple(number for number, ask in self._asks.items() if not ask.has_left)
        self._post(machine.LinkLost(attempt, str(why), unsent))

    async def _resume(self, attempt: int, is_first: bool) -> None:
        caller = self._reached.get(attempt)
        if caller is None:
            return  # given up before this began
        try:
            await self.resume(caller, is_first)
        except (ConnectionLost, Refused):
            return  # it is told by itself
        except Exception as error:
            # Of no use as it is; the next one may be. Without an end it would resume for ever.
            log.warning("a client was not resumed", exc_info=error)
            caller.close("DONE", "the client could not go on here")
            return
        self._post(machine.Resumed(attempt))

    def _hang(self, effect: machine.Hang) -> None:
        caller = self._reached.pop(effect.attempt, None)
        if caller is None or self.borrowed(caller):
            return
        # Those who read by it hear of its end by `cut`, and nothing else of it.
        if caller.is_open:
            caller.close("DONE", "the client is done")
        if not self.gone.done() and self.is_over:
            caller.gone.add_done_callback(lambda _: self._leave())

    def _over(self, effect: machine.TellOver) -> None:
        why = effect.why
        error: ConnectionLost | Refused = Over(f"the client is closed ({why})")
        if isinstance(self._why, ConnectionLost | Refused) and why == str(self._why):
            error = self._why
        if not self.lost.done():
            self.lost.set_result(error)
        self._settled.set()
        self._say(ClientEvent(EventKind.OVER, why))
        if self._caller is None or self._caller.gone.done() or self.borrowed(self._caller):
            self._leave()
        else:
            self._caller.gone.add_done_callback(lambda _: self._leave())
        self._tasks.cancel()

    def _leave(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


def is_final(error: BaseException) -> bool:
    """Whether to ask the same place again changes nothing until a person does something."""
    if isinstance(error, Untrusted | CertificateRefused | ConfigError):
        return True
    if not isinstance(error, MoorlineError | OSError):
        return True  # a mistake of ours
    return type(error) is Refused and error.reason == AUTH


async def _nothing(caller: Caller, is_first: bool) -> None:
    """Nobody has anything to bring back."""


def _nothing_sync(caller: Caller) -> None:
    """Nobody is to be told."""


def _is_ours(caller: Caller) -> bool:
    return caller is None  # never
