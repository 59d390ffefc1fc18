"""Room: net. A session: the node's end of one connection, and the table of who answers what.

A handler gets a run of messages of one type, as they stood in the frame, and returns the answers it
has at once. Answers that come later (after an fsync) go through `session.answer`. So a frame of a
hundred sends costs one call, not a hundred.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TypeVar

from moorline.core.link import AcceptingLink
from moorline.errors import CallFailed
from moorline.limits import CALLS_IN_FLIGHT_MAX
from moorline.net.connection import Connection
from moorline.wire.link import Welcome
from moorline.wire.message import Answer, Call, Failed, Message
from moorline.wire.protocol import node_decoder

log = logging.getLogger("moorline.net")

Calls = TypeVar("Calls", bound=Call)
Handler = Callable[["Session", list[Any]], Iterable[Answer]]
Handlers = dict[type[Message], Handler]


class Session(Connection):
    """One client at the node."""

    def __init__(
        self,
        name: str,
        handlers: Handlers,
        welcome: Callable[[int, int], Welcome],
        joined: Callable[["Session"], None],
        admit: Callable[["Session"], None],
        *,
        hello_timeout_ms: int,
        keepalive_ms: int,
    ) -> None:
        link = AcceptingLink(name, hello_timeout_ms=hello_timeout_ms, keepalive_ms=keepalive_ms)
        super().__init__(link, node_decoder, software="")
        self.name = name
        self.on_end: list[Callable[[], None]] = []
        self.end_code = ""
        """Why the session ended: DONE if its client said so."""
        self._handlers = handlers
        self._welcome = welcome
        self._joined = joined
        self._admit = admit
        self._in_flight = 0

    def answer(self, answers: list[Answer]) -> None:
        """Answers that were not ready when their calls were handled."""
        self._in_flight -= len(answers)
        self.send_all(answers)
        if self._in_flight < CALLS_IN_FLIGHT_MAX // 2:
            self.release_reading("calls in flight")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Only now: a TLS handshake that fails never comes here, and never leaves.
        self._joined(self)
        super().connection_made(transport)

    def welcome(self, version: int, keepalive_ms: int) -> Welcome:
        return self._welcome(version, keepalive_ms)

    def opened(self) -> None:
        self._admit(self)

    def received(self, messages: list[Message]) -> None:
        for kind, run in groupby(messages, type):
            calls = list(run)
            answers = self._handle(kind, calls)
            if issubclass(kind, Call):
                self._in_flight += len(calls) - len(answers)
            self.send_all(answers)
        if self._in_flight >= CALLS_IN_FLIGHT_MAX:
            self.hold_reading("calls in flight")

    def ended(self, code: str, text: str) -> None:
        log.debug("session ended", extra={"session": self.name, "code": code, "text": text})
        self.end_code = code
        for hook in self.on_end:
            hook()
        self.on_end.clear()

    def unsendable(self, message: Any) -> None:
        if isinstance(message, Answer):
            self.send(Failed(message.call, "TOO_LARGE", "the answer does not fit a frame"))
        else:
            log.error("a message is too large to be sent", extra={"kind": type(message).__name__})

    def _handle(self, kind: type[Message], calls: list[Any]) -> list[Answer]:
        handler = self._handlers.get(kind)
        if handler is None:
            if not issubclass(kind, Call):
                return []
            text = f"this node has no role that answers {kind.__name__}"
            return [Failed(call.call, "UNSUPPORTED", text) for call in calls]
        try:
            return list(handler(self, calls))
        except Exception as error:
            log.exception("a handler failed", extra={"call": kind.__name__})
            if len(calls) == 1 and issubclass(kind, Call):
                return [Failed(calls[0].call, "INTERNAL", type(error).__name__)]
            # Which of them were done is unknown, and some may be answered by a commit yet.
            self.close("INTERNAL", "a mistake in the node; its log says more")
            return []


def each(handler: Callable[[Session, Calls], Answer]) -> Handler:
    """A handler of runs from a handler of single calls, for calls that are rare."""

    def handle(session: Session, calls: list[Calls]) -> Iterable[Answer]:
        for call in calls:
            try:
                yield handler(session, call)
            except CallFailed as error:
                yield Failed(call.call, error.code, str(error))

    return handle
