"""Room: net. A session: the node's end of one connection, and the table of who answers what.

Which protocol it speaks, and who answers its messages, is said by whoever makes it.

A handler gets a run of messages of one type, as they stood in the frame, and returns the answers it
has at once. Answers that come later (after an fsync) go through `session.answer`. So a frame of a
hundred sends costs one call, not a hundred.

What a client may make us hold is bounded here, for every kind of call: a frame is handled step by step, and
no step begins while the client does not read, has too many calls in flight, has had its turn, or is told to
wait for others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

from moorline.core.access.certificate import PeerCertificate
from moorline.core.effects import Event
from moorline.core.proof import CheckProof
from moorline.errors import CallFailed
from moorline.limits import (
    ANSWERS_AT_ONCE_MAX,
    ANSWERS_PER_WRITE,
    CALLS_IN_FLIGHT_MAX,
    CALLS_PER_STEP,
    SESSION_TURN_MS,
)
from moorline.net.clock import monotonic_ms
from moorline.net.connection import SLOW, Connection
from moorline.net.fair_turns import FairTurns
from moorline.net.protocol import LinkProtocol
from moorline.net.records import Wrapping
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.net.tls import ANONYMOUS
from moorline.wire.message import Answer, Call, CallsGivenUp, Failed, Message

if TYPE_CHECKING:
    from moorline.net.http.peer import Peer

log = logging.getLogger("moorline.net")

Calls = TypeVar("Calls", bound=Call)
Handler = Callable[["Session", list[Any]], Iterable[Answer]]
Handlers = dict[type[Message], Handler]


CALLS = "calls in flight"
"""Why reading is held: too many calls are unanswered."""

TURN = "its turn"
"""Why reading is held: what was read waits for its turn among principals."""

NO_LINE: Final = FairTurns()
"""Of those that stand in none: nodes, and who is not known yet. It is never crowded."""


def mistaken(call: Call, error: Exception) -> Failed:
    """The answer to a call whose handler failed by a mistake of ours; the log says more than the type."""
    if isinstance(error, CallFailed):
        # It may come from deep below, such as a file that could not be opened: it has its own name.
        return Failed.of(call.call, error)
    return Failed(call.call, "INTERNAL", type(error).__name__)


class Session(Connection):
    """One client at the node."""

    rights: SessionRights
    """Known from the welcome on; no message is heard before."""
    allowance: SessionAllowance | None = None
    """None for nodes, which nothing bounds."""

    def __init__(
        self,
        name: str,
        protocol: LinkProtocol,
        handlers: Handlers,
        joined: Callable[["Session"], None],
        check_proof: Callable[["Session", CheckProof], Event | Awaitable[Event] | None],
        admit: Callable[["Session"], None],
        wrapping: Callable[[], Wrapping] | None = None,
    ) -> None:
        super().__init__(protocol)
        self.name = name
        self.identity = ANONYMOUS
        """Who it is, from the welcome on."""
        self.certificate: PeerCertificate | None = None
        """What its TLS handshake showed, whether that proves something here or not."""
        self.listener = ""
        """The address through which it came, as the settings write it."""
        self.is_local = False
        """Whether it is on this machine, as far as anybody can know: no proxy stands before its listener."""
        self.page: Peer | None = None
        """Of one in a browser: by what it came."""
        self.is_judged = False
        """Whether it was heard whether it may come in: who ends before was refused otherwise."""
        self._hooks: list[Callable[[], None]] = []
        self._is_over = False
        self.end_code = ""
        """Why the session ended: DONE if its client said so."""
        self.answering = asyncio.Semaphore(ANSWERS_AT_ONCE_MAX)
        """Held by whoever reads an answer from the disk, until it is on its way."""
        self._handlers = handlers
        self._joined = joined
        self._check_proof = check_proof
        self._admit = admit
        self._wrapping = wrapping
        self._in_flight = 0
        self._waiting: set[int] = set()
        """Calls that wait for their turn."""
        self._given_up: set[int] = set()
        """Those of them that nobody wants any more. Each is answered when its turn comes, so that what
        waits stays bounded."""
        self._work: Iterator[None] = iter(())
        """What is left of the frame that was heard last."""
        self._is_working = False
        self.turn_began_ms = 0
        """The time of its turn, for whoever needs not more than that: it is read once."""
        self._line = NO_LINE
        self._kept: list[bytes] = []
        """Bytes that wait for their turn among principals, as they came: no more than one read gave."""
        self._waits_for: set[str] = set()
        """Why no step begins: reasons of `hold_work`."""

    @property
    def can_leave(self) -> bool:
        """Whether its client goes to another node by itself where it is sent away."""
        return bool(getattr(self._protocol, "can_leave", False))

    @property
    def is_idle(self) -> bool:
        """Whether nothing that it was asked is unanswered."""
        return not self._in_flight and not self._is_behind

    def answer(self, answers: list[Answer]) -> None:
        """Answers that were not ready when their calls were handled."""
        self._in_flight -= len(answers)
        if len(answers) == 1:
            # Whoever sends one at a time waits for it: it leaves before another turn of the loop.
            self._pending += answers
            self._flush()
        else:
            self._send_answers(answers)
        if self._in_flight < CALLS_IN_FLIGHT_MAX // 2 and CALLS in self._holds:
            self.release_reading(CALLS)
            self._turn_soon()

    def at_end(self, hook: Callable[[], None]) -> None:
        """Calls it when the session ends; at once if it is over, or what the hook is to free would stay."""
        if self._is_over:
            hook()
        else:
            self._hooks.append(hook)

    def hold_work(self, reason: str) -> None:
        """Nothing is read, and of what is heard already no further step begins, until it is released."""
        self._waits_for.add(reason)
        self.hold_reading(reason)

    def release_work(self, reason: str) -> bool:
        """Whether there is work at hand, which goes on in the next turn of the loop."""
        self._waits_for.discard(reason)
        self.release_reading(reason)
        self._turn_soon()
        return self._is_behind and not self._line.is_crowded

    def wait_for_turn(self, calls: Iterable[Call]) -> None:
        self._waiting.update(call.call for call in calls)

    def begin_turn(self, call: Call) -> bool:
        """Whether it is still wanted. From now on it cannot be given up."""
        self._waiting.discard(call.call)
        if call.call not in self._given_up:
            return True
        self._given_up.discard(call.call)
        self.answer([Failed(call.call, "GIVEN_UP", "the caller gave it up before its turn")])
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Only now: a TLS handshake that fails never comes here, and never leaves.
        self._joined(self)
        super().connection_made(transport)

    def check_proof(self, check: CheckProof) -> Event | Awaitable[Event] | None:
        return self._check_proof(self, check)

    def wrapping(self) -> Wrapping:
        assert self._wrapping is not None, "nobody has keys for this session"
        return self._wrapping()

    def opened(self) -> None:
        self._admit(self)

    def data_received(self, data: bytes) -> None:
        if self._line.is_crowded:
            self._line.heard(self, data)
            return
        self.turn_began_ms = monotonic_ms()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        # What was said before the end counts, also if its turn has not come.
        if self._kept and self.is_open:
            self._hear_kept()
        super().connection_lost(exc)

    def received(self, messages: list[Message]) -> None:
        if len(messages) == 1:
            self._handle_single(messages[0])
        else:
            self._work = self._steps(messages)
            self._work_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        # Whoever does not read its answers may not ask for more: memory stays bounded both ways.
        self.hold_reading(SLOW)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.release_reading(SLOW)
        self._turn_soon()

    def ended(self, code: str, text: str) -> None:
        log.debug("session ended", extra={"session": self.name, "code": code, "text": text})
        self.end_code = code
        if not self._is_working:
            self._work_on()
        self._is_over = True
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook()

    def unsendable(self, message: Any) -> None:
        if isinstance(message, Answer):
            self.send(Failed(message.call, "TOO_LARGE", "the answer does not fit a frame"))
        else:
            log.error("a message is too large to be sent", extra={"kind": type(message).__name__})

    # --- turns ------------------------------------------------------------------------------------

    def stand_in_line(self, line: FairTurns) -> None:
        """From now on it has its turns among those of other principals."""
        self._line = line
        line.enter(self, self.identity.principal)
        self.at_end(self._leave_line)

    def _leave_line(self) -> None:
        line, self._line = self._line, NO_LINE
        line.leave(self)

    def hear(self, data: bytes) -> None:
        self.turn_began_ms = monotonic_ms()
        super().data_received(data)

    def keep(self, data: bytes) -> None:
        self._kept.append(data)
        self.hold_reading(TURN)

    def take_turn(self) -> None:
        was_behind = self._is_behind
        if self._kept:
            self.turn_began_ms = monotonic_ms()
            self._hear_kept()
            self.release_reading(TURN)
        if was_behind:
            self._next_turn()

    def _hear_kept(self) -> None:
        kept, self._kept = self._kept, []
        for data in kept:
            super().data_received(data)

    def _turn_soon(self) -> None:
        """Whatever kept it from going on is over."""
        if self._line.is_crowded:
            if self._is_behind:
                self._line.wait(self)
        else:
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        may_work = self.writable and not self._waits_for
        if self._is_behind and may_work and self._in_flight < CALLS_IN_FLIGHT_MAX:
            self.turn_began_ms = monotonic_ms()
            self._work_on()

    def _work_on(self) -> None:
        """Handles what was heard, until it is done or must wait; whoever it waits for calls again."""
        self._is_working = True
        for _ in self._work:
            if not self.is_open:
                continue
            if self._in_flight >= CALLS_IN_FLIGHT_MAX:
                self.hold_reading(CALLS)
                break
            if not self.writable or self._waits_for:
                break
            if monotonic_ms() >= self.turn_began_ms + SESSION_TURN_MS:
                if self._line.is_crowded:
                    self._line.wait(self)
                else:
                    self._loop.call_soon(self._next_turn)
                break
        else:
            self._is_working = False
            if self._is_behind:
                self.caught_up()
            return
        self._is_working = False
        if not self._is_behind:
            self.fall_behind()

    def _handle_single(self, message: Message) -> None:
        """A frame of one, as whoever waits for each answer sends it: in one step, if that is enough."""
        kind, calls = type(message), [message]
        handler = self._handlers.get(kind)
        if handler is None:
            self._work = self._steps(calls)
            self._work_on()
            return
        if isinstance(message, Call):
            self._in_flight += 1
        self._is_working = True
        self._work = iter((None,))
        try:
            answers = handler(self, calls)
            if not isinstance(answers, (list, tuple)):
                self._work = self._answer_by_step(kind, calls, answers)
            elif answers:
                self._in_flight -= len(answers)
                self._send_answers(answers)
        except Exception as error:
            self._mistaken(kind, calls, error)
        self._work_on()

    def _steps(self, messages: list[Message]) -> Iterator[None]:
        """Handles a frame; at each yield all is sent that is known, and the next step may wait."""
        for kind, run in groupby(messages, type):
            is_call, calls = issubclass(kind, Call), list(run)
            for some in _portions(kind, calls):
                if is_call and not self.is_open:
                    break  # nobody would hear of it; what needs no answer counts
                if is_call:
                    self._in_flight += len(some)
                yield from self._handle(kind, some)

    def _handle(self, kind: type[Message], calls: list[Any]) -> Iterator[None]:
        handler = self._handlers.get(kind)
        if kind is CallsGivenUp:
            self._give_up(calls)
            yield
            return
        if handler is None and not issubclass(kind, Call):
            return
        try:
            answers = (handler or _unsupported)(self, calls)
            if isinstance(answers, (list, tuple)):
                self._in_flight -= len(answers)
                self._send_answers(answers)
                yield
                return
        except Exception as error:
            self._mistaken(kind, calls, error)
        else:
            yield from self._answer_by_step(kind, calls, answers)

    def _answer_by_step(
        self, kind: type[Message], calls: list[Any], answers: Iterable[Answer]
    ) -> Iterator[None]:
        try:
            for answer in answers:
                self._in_flight -= 1
                self._send_answers((answer,))
                yield
                if not self.is_open:
                    return
        except Exception as error:
            self._mistaken(kind, calls, error)

    def _mistaken(self, kind: type[Message], calls: list[Any], error: Exception) -> None:
        log.error("a handler failed", exc_info=error, extra={"call": kind.__name__})
        if len(calls) == 1 and issubclass(kind, Call):
            self._in_flight -= 1
            self.send(mistaken(calls[0], error))
            return
        # Which of them were done is unknown, and some may be answered by a commit yet.
        self.close("INTERNAL", "a mistake in the node; its log says more")

    def _give_up(self, messages: list[CallsGivenUp]) -> None:
        for said in messages:
            stop = said.first + said.count
            if said.count < len(self._waiting):
                found = self._waiting.intersection(range(said.first, stop))
            else:
                found = {call for call in self._waiting if said.first <= call < stop}
            self._waiting -= found
            self._given_up |= found

    def _send_answers(self, answers: Iterable[Answer]) -> None:
        """Sends them, by the write: `writable` is to be true to what is known."""
        self.send_all(answers)
        if len(self._pending) >= ANSWERS_PER_WRITE:
            self._flush()


def _unsupported(session: Session, calls: list[Any]) -> Iterable[Answer]:  # noqa: ARG001 - a handler
    text = f"this node has no role that answers {type(calls[0]).__name__}"
    return [Failed(call.call, "UNSUPPORTED", text) for call in calls]


def _portions(kind: type[Message], calls: list[Any]) -> Iterator[list[Any]]:
    """What a handler gets together: by number, and by what is in them where they are long."""
    if not kind.weighed_by:
        for start in range(0, len(calls), CALLS_PER_STEP):
            yield calls[start : start + CALLS_PER_STEP]
        return
    portion: list[Any] = []
    weight = 0
    for call in calls:
        own = 1 + len(getattr(call, kind.weighed_by))
        if portion and weight + own > CALLS_PER_STEP:
            yield portion
            portion, weight = [], 0
        portion.append(call)
        weight += own
    yield portion


def each(handler: Callable[[Session, Calls], Answer]) -> Handler:
    """A handler of runs from a handler of single calls, for calls that are rare."""

    def handle(session: Session, calls: list[Calls]) -> Iterable[Answer]:
        for call in calls:
            try:
                yield handler(session, call)
            except CallFailed as error:
                yield Failed.of(call.call, error)

    return handle
