"""Room: client/records. A link on which a table is listened to without a copy of its rows.

It is opened as its `Moor` was, and another one behind a random pause when it is cut. What is subscribed to,
and what is made of what comes, is said by those who build on it: a witness (witness.py), a feed (feed.py).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar

import msgspec

from moorline.client.records.reassembly import Reassembly
from moorline.client.records.settings import RecordSettings
from moorline.config.addresses import Address
from moorline.errors import CallFailed, ConfigError, ConnectionLost, MoorlineError
from moorline.limits import GOODBYE_MS_MAX
from moorline.net.caller import Caller
from moorline.wire.message import Message
from moorline.wire.records import (
    FromClient,
    FromNode,
    RecordMessages,
    Refused,
    Subscribe,
    TableSubscription,
)

log = logging.getLogger("moorline.client")

PASSING = frozenset({"BUSY", "NOT_READY"})
"""Refusals that say nothing against the subscription."""

Self = TypeVar("Self", bound="Listening")


class Listening:
    def __init__(
        self,
        dial: Callable[[], Awaitable[tuple[Caller, Address]]],
        table: str,
        settings: RecordSettings | None = None,
    ) -> None:
        self.table = table
        self.sync = 0
        self._dial = dial
        self._settings = settings or RecordSettings()
        self._caller: Caller | None = None
        self._parts = Reassembly()
        self._running: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._leaving: Caller | None = None
        self._return_ms = 0

    def wanted(self) -> TableSubscription:
        """What is subscribed to on a new link."""
        raise NotImplementedError

    def hear(self, message: FromNode) -> None:
        """Of the table, and no refusal."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """The node has something against it, for good; or there is no link."""

    # --- what a program sees ----------------------------------------------------------------------

    async def begun(self) -> None:
        """Waits for the first sync; raises what the node has against it, or why there is no link."""
        if self._begun is None:
            raise ConfigError("it is not open: use it in `async with`")
        await asyncio.shield(self._begun)

    async def __aenter__(self: Self) -> Self:
        self._begun = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        self.conclude(ConnectionLost("it was closed"))
        if self._leaving is not None:
            # The goodbye is to be out before the program ends.
            await asyncio.wait([self._leaving.gone], timeout=GOODBYE_MS_MAX / 1_000)

    # --- for those who build on it ----------------------------------------------------------------

    def say(self, message: FromClient) -> None:
        if self._caller is not None:
            self._caller.send(RecordMessages(msgspec.msgpack.encode([message])))

    def subscribe(self) -> None:
        """As it is wanted now; what comes of an older set is not heard any more."""
        self.sync += 1
        self.say(Subscribe(self.sync, [self.wanted()]))

    def conclude(self, error: BaseException | None) -> None:
        """For whoever waits for the first sync."""
        begun = self._begun
        if begun is None or begun.done():
            return
        if error is None:
            begun.set_result(None)
        else:
            begun.set_exception(error)
            begun.exception()  # it may be that nobody waits any more

    # --- inside -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        tries = 0
        while True:
            try:
                self._caller, _ = await self._dial()
            except (MoorlineError, OSError) as error:
                self.conclude(error)
            else:
                tries = 0
                await self._serve(self._caller)
            pause_ms = self._settings.pause_ms(tries, random.random()) + self._return_ms
            self._return_ms = 0
            await asyncio.sleep(pause_ms / 1_000)
            tries += 1

    async def _serve(self, caller: Caller) -> None:
        try:
            self._parts = Reassembly()
            caller.pushed = self._pushed
            self.subscribe()
            await asyncio.shield(caller.lost)
        finally:
            caller.close("DONE", "listened to the end")
            self._leaving, self._caller = caller, None

    def _pushed(self, messages: list[Message]) -> None:
        try:
            for message in messages:
                if isinstance(message, RecordMessages):
                    for one in self._parts.take(message):
                        self._heard(one)
        except (MoorlineError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.warning("a node and a listener did not understand each other: %s", error)
            if self._caller is not None:
                self._caller.close("MALFORMED", str(error)[:200])

    def _heard(self, message: FromNode) -> None:
        if message.table != self.table:
            return
        if not isinstance(message, Refused):
            self.hear(message)
            return
        self._return_ms = message.return_ms
        if message.code not in PASSING:
            code = "DENIED" if message.code == "NOT_GRANTED" else message.code
            error = CallFailed.of(code, f"{self.table}: {message.why}")
            self.failed(error)
            self.conclude(error)
        if self._caller is not None:
            self._caller.close("DONE", "refused")
