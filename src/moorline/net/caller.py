"""Room: net. The calling end of a connection: calls out, answers in, matched by their numbers."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from moorline.config.addresses import Address
from moorline.core.link import ConnectingLink
from moorline.errors import CallFailed, ConnectionLost, Malformed, Refused, Unreachable, Untrusted
from moorline.limits import CALLS_IN_FLIGHT_MAX, FRAME_BYTES_MAX
from moorline.net.connection import Connection
from moorline.net.tls import client_context, why_untrusted
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Call, Failed, Message
from moorline.wire.protocol import client_decoder

Reply = TypeVar("Reply", bound=Answer)

REFUSALS = frozenset(
    {"AUTH", "BUSY", "DISABLED", "FRAME_TOO_LARGE", "HELLO_TIMEOUT", "MALFORMED", "VERSION"}
)
"""Codes of a goodbye that the caller should be told about, instead of a bare `connection lost`."""


class Batch:
    """The answers of calls that were made together; one future for all of them."""

    __slots__ = ("answers", "done", "missing")

    def __init__(self, count: int, done: "asyncio.Future[list[Answer]]") -> None:
        self.answers: list[Answer | None] = [None] * count
        self.missing = count
        self.done = done

    def put(self, place: int, answer: Answer) -> None:
        self.answers[place] = answer
        self.missing -= 1
        if self.missing == 0 and not self.done.done():
            self.done.set_result(self.answers)  # type: ignore[arg-type]  # all are there now


class Caller(Connection):
    """A connection that calls. `pushed` hears the messages that answer no call."""

    def __init__(
        self,
        software: str,
        *,
        hello_timeout_ms: int,
        keepalive_ms: int,
        pushed: Callable[[list[Message]], None] | None = None,
    ) -> None:
        link = ConnectingLink(
            "link to the node", hello_timeout_ms=hello_timeout_ms, keepalive_ms=keepalive_ms
        )
        super().__init__(link, client_decoder, software)
        self.node: Welcome | None = None
        self.pushed = pushed
        self.established: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[ConnectionLost | Refused] = self._loop.create_future()
        self._batches: dict[int, tuple[Batch, int]] = {}
        self._next_call = 1
        self._vacancy = asyncio.Event()

    async def call(self, make: Callable[[int], Message], reply: type[Reply]) -> Reply:
        """One call; `make` gets its number. A refusal comes as the error of its code."""
        (answer,) = await self.call_all([make])
        if isinstance(answer, Failed):
            raise CallFailed.of(answer.code, answer.text)
        if not isinstance(answer, reply):
            raise Malformed(f"{type(answer).__name__} does not answer a call for {reply.__name__}")
        return answer

    def cast(self, make: Callable[[int], Message]) -> None:
        """A call whose answer nobody waits for."""
        self.send(make(self._next_call))
        self._next_call += 1

    async def call_all(self, makes: Sequence[Callable[[int], Message]]) -> list[Answer]:
        """Many calls in as few frames as they need; refusals are among the answers."""
        if not makes:
            return []
        await self._wait_for_room()
        batch = Batch(len(makes), self._loop.create_future())
        first = self._next_call
        self._next_call += len(makes)
        for place in range(len(makes)):
            self._batches[first + place] = (batch, place)
        self.send_all([make(first + place) for place, make in enumerate(makes)])
        try:
            return await batch.done
        finally:
            if batch.missing:
                for place in range(len(makes)):
                    self._batches.pop(first + place, None)

    def received(self, messages: list[Message]) -> None:
        pushed: list[Message] = []
        for message in messages:
            if isinstance(message, Answer):
                waiting = self._batches.pop(message.call, None)
                # An answer to a call that was given up is no mistake of the node's.
                if waiting is not None:
                    waiting[0].put(waiting[1], message)
            else:
                pushed.append(message)
        if len(self._batches) < CALLS_IN_FLIGHT_MAX:
            self._vacancy.set()
        if pushed and self.pushed is not None:
            self.pushed(pushed)

    def unsendable(self, message: Any) -> None:
        if isinstance(message, Call):
            text = f"{type(message).__name__} does not fit a frame of {FRAME_BYTES_MAX} bytes"
            self.received([Failed(message.call, "TOO_LARGE", text)])

    def welcomed(self, welcome: Welcome) -> None:
        self.node = welcome

    def opened(self) -> None:
        if not self.established.done():
            self.established.set_result(None)

    def ended(self, code: str, text: str) -> None:
        error: ConnectionLost | Refused
        if code in REFUSALS:
            error = Refused(code, text)
        else:
            error = ConnectionLost(f"the connection to the node is gone ({code}: {text})")
        self.lost.set_result(error)
        if not self.established.done():
            self.established.set_exception(error)
        for batch in {batch for batch, _ in self._batches.values()}:
            if not batch.done.done():
                batch.done.set_exception(error)
        self._batches.clear()
        self._vacancy.set()

    async def _wait_for_room(self) -> None:
        while True:
            if self.lost.done():
                raise self.lost.result()
            if not self.writable:
                await self.room_to_write()
            elif len(self._batches) >= CALLS_IN_FLIGHT_MAX:
                self._vacancy.clear()
                await self._vacancy.wait()
            else:
                return


async def open_caller(
    address: Address,
    make: Callable[[], Caller],
    *,
    timeout_ms: int,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Caller:
    """Connects and greets within that time."""
    tls = client_context(ca, certificate, key) if address.scheme == "tls" else None
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
        why = error.reason or error
        raise Unreachable(f"{address}: TLS failed: {why}: is it a tls:// port?") from error
    except ConnectionLost as error:
        hint = "is it a tls:// port, or no node at all?" if tls is None else "is it a node?"
        raise Unreachable(f"{address}: it hung up before it said hello: {hint}") from error
    except socket.gaierror as error:
        why = error.strerror or "no such name"
        raise Unreachable(f"{address}: {address.host}: {why}: is the name right?") from error
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise Unreachable(f"{address}: {why}: is the node running?") from error
    return caller
