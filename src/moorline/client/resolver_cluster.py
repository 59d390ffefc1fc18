"""Room: client. The resolvers of one list, asked batch by batch: the shell of core/directory/read_batch.py.

A connection that answered is kept for the next batch. One that hangs is closed, so that nobody else waits
there.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

import msgspec

from moorline.client.credentials import ClientIdentity, prepared
from moorline.config.addresses import Address
from moorline.core.directory.read_batch import (
    Answered,
    Ask,
    Begin,
    Connect,
    Connected,
    Failed,
    Finish,
    GiveUp,
    Heard,
    Leave,
    ReadBatch,
)
from moorline.core.effects import Event
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    Expired,
    MoorlineError,
    NotReady,
    Refused,
    RightsUnknown,
    TlsError,
    Unreachable,
    Unsupported,
)
from moorline.limits import (
    GOODBYE_MS_MAX,
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    READ_ANSWER_MS,
    READ_ANSWER_US,
)
from moorline.net.caller import Caller, open_caller
from moorline.net.driver import Driver
from moorline.version import SOFTWARE
from moorline.wire.message import Message

log = logging.getLogger("moorline.client")

OnPage = Callable[[], None]
"""A part of several answers tells each of them: its time begins anew."""

AskPart = Callable[[Caller, int, OnPage], Awaitable[bool]]
"""Asks for a part of a batch and keeps the answer; true if it is weak."""

PASSING = frozenset({"BUSY", "HELLO_TIMEOUT", "STOPPING"})
"""Reasons to be sent away that another member, or the same one later, does not have."""

NOT_SERVING = (Unsupported, NotReady, RightsUnknown)
"""Refusals of one resolver that another one may not share."""


class ReaderLink(msgspec.Struct, frozen=True):
    """How a reader connects."""

    identity: ClientIdentity
    answer_ms: int = READ_ANSWER_MS
    connect_ms: int = HELLO_TIMEOUT_MS
    can_leave: bool = False
    """Whether what is opened may be sent to another node."""

    async def opened(
        self, address: Address, pushed: Callable[[list[Message]], None] | None = None
    ) -> Caller:
        credentials = await prepared(self.identity.proof, address)
        return await open_caller(
            address,
            lambda: Caller(
                f"{SOFTWARE} python",
                hello_timeout_ms=self.connect_ms,
                keepalive_ms=KEEPALIVE_MS,
                pushed=pushed,
                credentials=credentials,
                can_leave=self.can_leave,
            ),
            timeout_ms=self.connect_ms,
            **self.identity.files(),
        )


class ResolverCluster:
    """The members of one list."""

    def __init__(self, addresses: Sequence[Address], link: ReaderLink) -> None:
        assert addresses, "nobody to ask"
        self.addresses = tuple(addresses)
        self.link = link
        self.chance = Random(secrets.randbits(64))
        self._callers: dict[int, Caller] = {}
        self._opening: dict[int, asyncio.Task[Caller]] = {}

    async def run(self, parts: int, paths: int, ask: AskPart) -> None:
        """Has all parts answered, by whichever members do; raises if none does."""
        timer_ms = max(self.link.answer_ms, paths * READ_ANSWER_US // 1_000)
        await _Run(self, parts, timer_ms, ask).done()

    async def caller(self, member: int) -> Caller:
        """The connection to a member; opened if there is none."""
        known = self._callers.get(member)
        if known is not None and known.is_open:
            return known
        opening = self._opening.get(member)
        if opening is None:
            opening = asyncio.create_task(self.link.opened(self.addresses[member]))
            self._opening[member] = opening
            opening.add_done_callback(lambda task: self._opened(member, task))
        # Several batches may wait for it, and one that is cancelled takes nothing from the others.
        return await asyncio.shield(opening)

    def _opened(self, member: int, task: "asyncio.Task[Caller]") -> None:
        self._opening.pop(member, None)
        if not task.cancelled() and task.exception() is None:
            self._callers[member] = task.result()

    def leave(self, member: int) -> None:
        """It hangs: whoever waits there hears that it is gone."""
        caller = self._callers.pop(member, None)
        if caller is not None:
            caller.abandon()
        opening = self._opening.pop(member, None)
        if opening is not None:
            opening.cancel()

    @property
    def connected(self) -> list[int]:
        return [member for member, caller in self._callers.items() if caller.is_open]

    async def close(self) -> None:
        for opening in list(self._opening.values()):
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, MoorlineError):
                await opening
        gone = []
        for caller in self._callers.values():
            caller.close("DONE", "the reader is done")
            gone.append(caller.gone)
        self._callers.clear()
        if gone:
            await asyncio.wait(gone, timeout=GOODBYE_MS_MAX / 1_000)


class _Run:
    """One batch."""

    def __init__(self, cluster: ResolverCluster, parts: int, timer_ms: int, ask: AskPart) -> None:
        self._cluster = cluster
        self._ask_part = ask
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._current: Caller | None = None
        self._member = 0
        self._refusals: dict[int, MoorlineError] = {}
        """What each member said last. One that hangs says nothing."""
        machine = ReadBatch(
            "a batch of questions",
            len(cluster.addresses),
            parts,
            timer_ms,
            cluster.chance,
            cluster.connected,
        )
        self._driver = Driver(
            machine,
            {
                Connect: self._connect,
                Ask: self._ask,
                Leave: self._leave,
                Finish: self._finish,
                GiveUp: self._give_up,
            },
            self._mistaken,
        )

    async def done(self) -> None:
        try:
            self._driver.post(Begin())
            await self._done
        finally:
            self._driver.close()

    async def _connect(self, effect: Connect) -> Event:
        try:
            self._current = await self._cluster.caller(effect.member)
        except MoorlineError as error:
            self._refusals[effect.member] = error
            return Failed(effect.attempt, str(error))
        except asyncio.CancelledError:
            # Another batch has left this member while it was connecting.
            if self._done.done() or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            return Failed(effect.attempt, f"{self._cluster.addresses[effect.member]}: it hangs")
        self._refusals.pop(effect.member, None)
        self._member = effect.member
        return Connected(effect.attempt)

    async def _ask(self, effect: Ask) -> Event:
        assert self._current is not None
        caller, member = self._current, self._member
        try:
            is_weak = await self._ask_part(
                caller, effect.part, lambda: self._driver.post(Heard(effect.attempt))
            )
        except NOT_SERVING as error:
            self._refusals[member] = error
            return Failed(effect.attempt, str(error))
        except CallFailed as error:
            # The same everywhere: nobody else has to be asked.
            if not self._done.done():
                self._done.set_exception(error)
            return Answered(effect.attempt, effect.part)
        except MoorlineError as error:
            self._refusals[member] = error
            return Failed(effect.attempt, str(error))
        return Answered(effect.attempt, effect.part, is_weak)

    def _leave(self, effect: Leave) -> None:
        self._cluster.leave(effect.member)

    def _finish(self, effect: Finish) -> None:  # noqa: ARG002
        if not self._done.done():
            self._done.set_result(None)

    def _give_up(self, effect: GiveUp) -> None:
        if not self._done.done():
            self._done.set_exception(self._failure(effect.whys))

    def _failure(self, whys: tuple[str, ...]) -> MoorlineError:
        """What is wrong with us, whoever says it; else what all of them say, if they say the same."""
        telling = most_telling(self._refusals)
        if telling is not None:
            member, error = telling
            return with_address(error, self._cluster.addresses[member])
        listed = ", ".join(map(str, self._cluster.addresses))
        return Unreachable(f"no resolver of {listed} answers: {'; '.join(dict.fromkeys(whys))}")

    def _mistaken(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)


def most_telling(refusals: Mapping[int, MoorlineError]) -> tuple[int, MoorlineError] | None:
    """Of those who do not serve a batch, who says most, and what; none where they are only not there.

    A proof that is not taken is told, however many others are dead: nobody who hears "unreachable" looks at
    his certificate. Behind it come those that ask for patience, and what is the same at all of them.
    """
    for is_telling in (_is_of_proof, lambda error: isinstance(error, NotReady | RightsUnknown)):
        for member, error in refusals.items():
            if is_telling(error):
                return member, error
    kinds = {type(error) for error in refusals.values()}
    first = next(iter(refusals.items()), None)
    if first is None or len(kinds) > 1 or isinstance(first[1], ConnectionLost):
        return None
    return first


def _is_of_proof(error: MoorlineError) -> bool:
    """Whether it is about who we are, or who they are: to ask again changes nothing."""
    if isinstance(error, Refused):
        return error.reason not in PASSING
    return isinstance(error, TlsError | Expired)


def with_address(error: MoorlineError, address: Address) -> MoorlineError:
    """Whoever is refused hears where."""
    if isinstance(error, Refused) and str(address) not in error.text:
        return Refused.of_reason(error.reason, f"{address}: {error.text}")
    return error
