"""Room: net. The calling end of a connection: calls out, answers in, matched by their numbers."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from moorline.config.addresses import Address
from moorline.core.connecting_link import ConnectingLink
from moorline.core.effects import Event
from moorline.core.proof import MakeProof
from moorline.errors import (
    ConnectionLost,
    Expired,
    FrameTooLarge,
    KerberosError,
    Malformed,
    Refused,
    Unreachable,
    Untrusted,
    WrongLoop,
)
from moorline.limits import CALLS_IN_FLIGHT_MAX, FRAME_BYTES_MAX
from moorline.net.authentication import Credentials, Wraps, checked_mechanism, made_proof
from moorline.net.connection import Connection
from moorline.net.native import OF_NODES, NativeClientEnd, Tongue
from moorline.net.own_loop import OwnLoop
from moorline.net.records import Wrapping
from moorline.net.refused_certificate import alert_of, certificate_refused
from moorline.net.tls import client_context, why_untrusted
from moorline.wire.bounds import fault_of
from moorline.wire.decoder import MessageDecoder
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Call, CallsGivenUp, Failed, Message

log = logging.getLogger("moorline.net")

Reply = TypeVar("Reply", bound=Answer)
Heard = Callable[[Answer], object]
Make = Callable[[int], Message]

KERBEROS = "gssapi"
"""The mechanism whose refusals have an error of their own."""

REFUSALS = frozenset(
    {
        "AUTH",
        "BUSY",
        "DISABLED",
        "FRAME_TOO_LARGE",
        "HELLO_TIMEOUT",
        "MALFORMED",
        "VERSION",
        *Refused.by_reason,
    }
)
"""Codes of a goodbye that the caller should be told about, instead of a bare `connection lost`."""


class Batch:
    """The answers of calls that were made together; one future for all of them."""

    __slots__ = ("answers", "done", "first", "heard", "is_given_up", "missing", "unheard")

    def __init__(
        self,
        first: int,
        count: int,
        done: "asyncio.Future[list[Answer]]",
        heard: Heard | None,
        unheard: Heard | None,
    ) -> None:
        self.first = first
        """The number of the first call."""
        self.answers: list[Answer | None] = [None] * count
        self.missing = count
        self.done = done
        self.heard = heard
        self.unheard = unheard
        self.is_given_up = False

    def put(self, answer: Answer) -> None:
        self.answers[answer.call - self.first] = answer
        self.missing -= 1
        if self.heard is not None:
            self.heard(answer)
        if self.is_given_up and self.unheard is not None:
            self.unheard(answer)
        if self.missing == 0 and not self.done.done():
            self.done.set_result(self.answers)  # type: ignore[arg-type]  # all are there now

    def give_up(self) -> None:
        """The caller was cancelled. What has been answered already is unheard too."""
        self.is_given_up = True
        if self.unheard is not None:
            for answer in self.answers:
                if answer is not None:
                    self.unheard(answer)


class Calls(Protocol):
    """Whatever calls go by: a connection, or what stands for one after the other."""

    async def call(
        self,
        make: Make,
        reply: type[Reply],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
    ) -> Reply: ...

    async def call_all(
        self,
        makes: Sequence[Make],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
    ) -> list[Answer]: ...

    def cast(self, make: Make, heard: Heard | None = None) -> None: ...

    def check_loop(self) -> None: ...

    def close(self, code: str, text: str) -> None: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def node(self) -> Welcome | None: ...

    lost: "asyncio.Future[ConnectionLost | Refused]"
    gone: "asyncio.Future[None]"
    pushed: Callable[[list[Message]], None] | None


class Caller(Connection):
    """A connection that calls. `pushed` hears the messages that answer no call."""

    def __init__(
        self,
        software: str,
        *,
        hello_timeout_ms: int,
        keepalive_ms: int,
        pushed: Callable[[list[Message]], None] | None = None,
        credentials: Credentials | None = None,
        tongue: Tongue = OF_NODES,
        can_leave: bool = False,
    ) -> None:
        """With `credentials` it proves who it is; without them its certificate does, or nothing. `can_leave`
        tells the node that whoever calls knows others, and goes there if this one says goodbye."""
        link = ConnectingLink(
            "link to the node",
            hello_timeout_ms=hello_timeout_ms,
            keepalive_ms=keepalive_ms,
            mechanism=checked_mechanism(credentials),
        )
        self._credentials = credentials
        self.alert = ""
        """What the node said of our certificate, if that is why it hung up."""
        self._native = NativeClientEnd(link, software, tongue, can_leave=can_leave)
        self._tongue = tongue
        super().__init__(self._native)
        self.pushed = pushed
        self.established: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[ConnectionLost | Refused] = self._loop.create_future()
        self.end_code = ""
        """Of the goodbye, or of what ended the link, once it is lost."""
        self._batches: dict[int, Batch] = {}
        """By the number of each call that has no answer yet."""
        self._next_call = 1
        self._vacancy = asyncio.Event()
        self._own_loop = OwnLoop()

    @property
    def node(self) -> Welcome | None:
        """What the node said of itself."""
        return self._native.welcome

    async def call(
        self,
        make: Make,
        reply: type[Reply],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
    ) -> Reply:
        """One call; `make` gets its number. A refusal comes as the error of its code."""
        (answer,) = await self.call_all(
            [make], heard=heard, unheard=unheard, must_arrive=must_arrive
        )
        return answered_by(answer, reply)

    def cast(self, make: Make, heard: Heard | None = None) -> None:
        """A call that nobody waits for."""
        self.begin([make], heard, None).done.cancel()

    async def call_all(
        self,
        makes: Sequence[Make],
        *,
        heard: Heard | None = None,
        unheard: Heard | None = None,
        must_arrive: bool = False,
        begun: Callable[[], object] | None = None,
    ) -> list[Answer]:
        """Many calls in as few frames as they need; refusals are among the answers.

        `heard` hears each answer when it comes, in its order among what is pushed, cancelled or not;
        `unheard` each answer that this call was cancelled before it could return. A call that is cancelled
        is given up at the node too, unless it `must_arrive`: then it is also sent without waiting. `begun` is
        called when they leave: before that a lost connection has done nothing of it. `answers_before` tells
        of its error whether they had left, and what had been answered.
        """
        self.check_loop()
        if not makes:
            return []
        if not self.has_room and (self.lost.done() or not must_arrive):
            await self._wait_for_room()
        batch = self.begin(makes, heard, unheard)
        if begun is not None:
            begun()
        try:
            return await batch.done
        except asyncio.CancelledError:
            self.give_up(batch, must_arrive=must_arrive)
            raise

    def check_loop(self) -> None:
        """Refuses a caller on another loop: it would wait for ever, or write from two threads at once."""
        if not self._own_loop.is_here:
            raise WrongLoop(
                "this connection belongs to another event loop: connect in the loop that uses it, or "
                "hand the work over with asyncio.run_coroutine_threadsafe"
            )

    @property
    def has_room(self) -> bool:
        """Whether a call leaves at once: `begin` is for those that do."""
        return self.writable and len(self._batches) < CALLS_IN_FLIGHT_MAX and not self.lost.done()

    def begin(self, makes: Sequence[Make], heard: Heard | None, unheard: Heard | None) -> Batch:
        """Calls that leave with what else is said in this turn of the loop; its `done` brings the answers.

        Whoever stops waiting for it before has to `give_up`.
        """
        first, count = self._next_call, len(makes)
        self._next_call = first + count
        batch = Batch(first, count, self._loop.create_future(), heard, unheard)
        if count == 1:
            self.send(makes[0](first))
            self._batches[first] = batch
        else:
            numbers = range(first, first + count)
            self.send_all([make(number) for make, number in zip(makes, numbers, strict=True)])
            self._batches.update(dict.fromkeys(numbers, batch))
        return batch

    def give_up(self, batch: Batch, *, must_arrive: bool) -> None:
        """Nobody waits for it any more: the node is told, so that what waits there for its turn does not keep
        the next call waiting."""
        batch.give_up()
        if not batch.missing or must_arrive:
            return
        if self.is_open:
            self.send(CallsGivenUp(batch.first, len(batch.answers)))
        if batch.heard is None and batch.unheard is None:
            for number in range(batch.first, batch.first + len(batch.answers)):
                self._batches.pop(number, None)
            self._vacancy.set()

    def received(self, messages: list[Message]) -> None:
        pushed: list[Message] = []
        unanswered = self._batches
        for message in messages:
            if isinstance(message, Answer):
                batch = unanswered.pop(message.call, None)
                # An answer to a call that was given up is no mistake of the node's.
                if batch is None:
                    continue
                if pushed and (batch.heard is not None or batch.is_given_up):
                    # What was pushed before it means what it meant then.
                    self._hear(pushed)
                    pushed = []
                batch.put(message)
            else:
                pushed.append(message)
        if len(self._batches) < CALLS_IN_FLIGHT_MAX:
            self._vacancy.set()
        self._hear(pushed)

    def _hear(self, pushed: list[Message]) -> None:
        if pushed and self.pushed is not None:
            self.pushed(pushed)

    def unsendable(self, message: Any) -> None:
        code, text = _why_unsendable(message, self._tongue.other)
        if isinstance(message, Call):
            self.received([Failed(message.call, code, text)])
        else:
            log.error("a message cannot be sent", extra={"why": text})

    def make_proof(self, make: MakeProof) -> Awaitable[Event]:
        assert self._credentials is not None, "nobody proves itself with nothing"
        return made_proof(self._credentials, make, is_wrapped=self._link.is_wrapped)

    def wrapping(self) -> Wrapping:
        assert isinstance(self._credentials, Wraps), "credentials that have no keys"
        return self._credentials.wrapping()

    def opened(self) -> None:
        if not self.established.done():
            self.established.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        # With TLS 1.3 the node looks at our certificate when we think that the link is open.
        self.alert = alert_of(exc)
        super().connection_lost(exc)

    def ended(self, code: str, text: str) -> None:
        error: ConnectionLost | Refused
        self.end_code = code
        if code == "LOST" and self.alert:
            error = certificate_refused(self.alert)
        elif code == "AUTH" and self._link.mechanism == KERBEROS:
            error = KerberosError(code, text)
        elif code in REFUSALS:
            error = Refused.of_reason(code, text)
        else:
            kind = Expired if code == Expired.code else ConnectionLost
            error = kind(f"the connection to the node is gone ({code}: {text})")
        self.lost.set_result(error)
        if not self.established.done():
            self.established.set_exception(error)
            # Whoever opened it may have been cancelled: then nobody asks, and that is no mistake.
            self.established.exception()
        for batch in set(self._batches.values()):
            if not batch.done.done():
                batch.done.set_exception(_unanswered(error, batch.answers))
        self._batches.clear()
        self._vacancy.set()

    async def _wait_for_room(self) -> None:
        while not self.has_room:
            if self.lost.done():
                raise self.lost.result()
            if not self.writable:
                await self.room_to_write()
            else:
                self._vacancy.clear()
                await self._vacancy.wait()


def _why_unsendable(message: Message, other: MessageDecoder) -> tuple[str, str]:
    """The code of the refusal, and its text."""
    try:
        fault = fault_of(message, other)
    except (FrameTooLarge, OverflowError, TypeError, ValueError):
        fault = None
    if fault is None:
        text = f"{type(message).__name__} does not fit a frame of {FRAME_BYTES_MAX} bytes"
        return "TOO_LARGE", text
    # What is no number, or not in its range, is not too large.
    return "TOO_LARGE" if "of length <=" in fault else "MALFORMED", fault


def answered_by(answer: Answer, reply: type[Reply]) -> Reply:
    """The answer, if it is what was asked for; a refusal is raised as the error of its code."""
    if type(answer) is reply:
        return answer
    if isinstance(answer, Failed):
        raise answer.error()
    if not isinstance(answer, reply):
        raise Malformed(f"{type(answer).__name__} does not answer a call for {reply.__name__}")
    return answer


def answers_before(error: ConnectionLost | Refused) -> list[Answer | None] | None:
    """Of calls that were made together and met the end of their link: what had been answered, each in its
    place. None if the link ended before they left."""
    return getattr(error, _ANSWERS, None)


_ANSWERS = "answers_before"


def _unanswered(
    error: ConnectionLost | Refused, answers: list[Answer | None]
) -> ConnectionLost | Refused:
    """For calls that were sent: nobody may take the end of the link for an answer."""
    if isinstance(error, Refused):
        found: ConnectionLost | Refused = type(error)(error.reason, error.text)
    else:
        found = type(error)(f"{error}; what was asked last may have been done or not")
    setattr(found, _ANSWERS, answers)
    return found


async def open_caller(
    address: Address,
    make: Callable[[], Caller],
    *,
    timeout_ms: int,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Caller:
    """Connects and greets within that time. Whoever is cancelled meanwhile leaves no connection behind."""
    tls = client_context(ca, certificate, key) if address.scheme == "tls" else None
    made: list[Caller] = []

    def keep() -> Caller:
        made.append(make())
        return made[-1]

    try:
        return await _established(address, keep, timeout_ms, tls, ca, certificate)
    except BaseException:
        # Between the socket and the welcome it is nobody's, and no transport is known to us.
        for caller in made:
            caller.abandon()
        raise


async def _established(
    address: Address,
    make: Callable[[], Caller],
    timeout_ms: int,
    tls: ssl.SSLContext | None,
    ca: Path | None,
    certificate: Path | None,
) -> Caller:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            _, caller = await loop.create_connection(make, address.host, address.port, ssl=tls)
            await caller.established
    except TimeoutError as error:
        raise Unreachable(f"{address}: no answer within {timeout_ms} ms") from error
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(f"{address}: TLS failed: {why_untrusted(error, ca)}") from error
    except ssl.SSLError as error:
        if alert := alert_of(error):
            raise certificate_refused(alert, str(address), certificate) from error
        why = error.reason or error
        raise Unreachable(f"{address}: TLS failed: {why}: is it a tls:// port?") from error
    except KerberosError as error:
        raise KerberosError(error.reason, f"{address}: {error.text}") from None
    except Refused:
        if caller.alert:
            raise certificate_refused(caller.alert, str(address), certificate) from None
        raise
    except Expired:
        raise
    except ConnectionLost as error:
        hint = "is it a tls:// port, or no node at all?" if tls is None else "is it a node?"
        if tls is not None and certificate is not None:
            # With TLS 1.3 it may be that, if what the node said of it was lost on its way.
            hint = f"does the node trust the CA of {certificate}?"
        raise Unreachable(f"{address}: it hung up before it said hello: {hint}") from error
    except socket.gaierror as error:
        why = error.strerror or "no such name"
        raise Unreachable(f"{address}: {address.host}: {why}: is the name right?") from error
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise Unreachable(f"{address}: {why}: is the node running?") from error
    return caller
