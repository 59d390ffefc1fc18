"""Room: client. `StayingLink`: one connection after the other, that looks like one which is never lost.

The rules are those of `core/staying.py`; here they are performed: dials, calls, timers. What was subscribed
is brought back by whoever has it, in `resume`. Design: docs/design/client.md.
What becomes of calls is in `client/asking.py`.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from moorline.client.asking import AskingLink, Verdict
from moorline.client.events import ClientEvent, EventKind, Told
from moorline.client.role_dial import Dial
from moorline.core import staying as machine
from moorline.core.effects import Effect, Event
from moorline.core.staying import Staying, StayState
from moorline.errors import (
    CertificateRefused,
    ConfigError,
    ConnectionLost,
    MoorlineError,
    Refused,
    Unreachable,
    Untrusted,
)
from moorline.net.caller import Caller, Heard, Make
from moorline.net.clock import monotonic_ms
from moorline.net.interpreter import Interpreter, Performer, nothing_awaited
from moorline.net.tasks import Tasks
from moorline.wire.link import Welcome
from moorline.wire.message import Message

log = logging.getLogger("moorline.client")

AUTH = "AUTH"


class Over(ConnectionLost):
    """The client is closed."""


class StayingLink(AskingLink):
    """Made for one event loop; `begin` connects for the first time."""

    def __init__(
        self,
        dials: Sequence[Dial],
        *,
        told: Told | None = None,
        deadline_s: float | None = None,
        name: str = "the client's link",
    ) -> None:
        super().__init__(Staying(name, len(dials), random.Random()), deadline_s)
        self._dials = dials
        self._told = told
        self._tasks = Tasks("a link that stays has failed")
        self._reached: dict[int, Caller] = {}
        self._interpreter = Interpreter(self._performers(), self._post, nothing_awaited)
        self._settled = asyncio.Event()
        self.home_wanted = ""
        """Only the node of this home will do."""
        self.pushed: Callable[[list[Message]], None] | None = None
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

    def cast(self, make: Make, heard: Heard | None = None) -> None:
        """A call that nobody waits for; without a link nobody hears it."""
        if self._caller is not None and self._caller.is_open:
            self._caller.cast(make, heard)

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
        self._up = None
        self._tell()
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
        self._up = self._caller
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
        self._why, self._up = why, None
        self._tell()
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
