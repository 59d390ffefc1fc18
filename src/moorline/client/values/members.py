"""Room: client. What a publisher has published, at each resolver: the shells of the replicas.

Cluster    the resolvers of one list, and what they are to have; a referral makes another one
Member     one resolver: its connection, its login, and what is asked there
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from moorline.client.values.entry_exchange import EntryExchange, SharedEntries
from moorline.config.addresses import Address
from moorline.core.directory.path import DEFAULT, is_at_or_below, parent_of
from moorline.core.directory.published import MemberView, PublishedPaths
from moorline.core.directory.replica import (
    Answered,
    Changed,
    Compare,
    Disconnect,
    Doubted,
    Failed,
    LinkLost,
    LoggedIn,
    LogIn,
    Replica,
    ReplicaState,
    SayHeartbeat,
    SendChanges,
    Start,
    Stop,
    TellCurrent,
    TellDegraded,
)
from moorline.core.effects import Event
from moorline.core.sets.digest import Digest
from moorline.core.sets.sketch import Salt
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    Malformed,
    MoorlineError,
    Refused,
    Unreachable,
)
from moorline.limits import (
    CLOSE_ANSWER_MS,
    PATHS_PER_CALL_MAX,
    REPLICA_CALLS_AT_ONCE,
    WRITE_ANSWER_MS,
    WRITE_ANSWER_US,
)
from moorline.net.caller import Caller, Heard, Make
from moorline.net.driver import Driver
from moorline.net.reconcile import reconcile
from moorline.wire.message import Answer, Message
from moorline.wire.message import Failed as CallRefused
from moorline.wire.resolver import (
    ClosePublisher,
    Heartbeat,
    HeartbeatHeard,
    Holder,
    HoldersJudged,
    JudgeHolders,
    OpenPublisher,
    PathsPublished,
    PathsUnpublished,
    PublisherClosed,
    PublisherOpened,
    PublishPaths,
    Referral,
    RightsChanged,
    UnpublishPaths,
)

log = logging.getLogger("moorline.client")

Reply = TypeVar("Reply", bound=Answer)
REFERRED = "REFERRED"


HeldClaim = tuple[str, int, Holder]
"""A path, what a token gave there, and to whom."""


class Home(Protocol):
    """The publisher, as its members see it."""

    async def call(self, address: Address, pushed: Callable[[list[Message]], None]) -> Caller:
        """A connection to a resolver, with the publisher's own proof."""

    def login(self, call: int, key: bytes) -> OpenPublisher: ...

    def expect(self, key: bytes) -> None:
        """A resolver is about to dial, and will ask for this key."""

    def forget(self, key: bytes) -> None: ...

    def opened(self, member: "Member", opened: PublisherOpened) -> None: ...

    def rights_changed(self, member: "Member", at_s: int) -> None: ...

    def news(self, member: "Member") -> None:
        """It is current, or degraded, or away, or not any more."""

    def degraded(self, member: "Member") -> None:
        """It was not reached several times in a row."""


class Referring(Protocol):
    """The cluster of a member."""

    @property
    def published(self) -> PublishedPaths: ...
    @property
    def entries(self) -> SharedEntries: ...

    def refer(self, referral: Referral, path: str, flags: int) -> None:
        """This path is another cluster's."""


class Member:
    """One resolver."""

    def __init__(self, cluster: Referring, address: Address, home: Home, chance: Random) -> None:
        self.address = address
        self.why = ""
        """Why it is not current, in words; empty while it is."""
        self.error: MoorlineError | None = None
        """The error behind that, if one there is."""
        self.view = MemberView(cluster.published)
        self._cluster = cluster
        self._home = home
        self._caller: Caller | None = None
        self._salt = Salt(bytes(16))
        self._is_busy = False
        self._replica = Replica(f"replica at {address}", self.view, chance)
        self._driver = Driver(
            self._replica,
            {
                LogIn: lambda _: self._done(self._log_in()),
                SendChanges: lambda effect: self._done(self._send(effect)),
                SayHeartbeat: lambda _: self._done(self._say_heartbeat()),
                Compare: lambda effect: self._done(self._compare(effect)),
                Disconnect: lambda _: self._disconnect(),
                TellDegraded: self._tell_degraded,
                TellCurrent: lambda _: self._tell_current(),
            },
            self._broken,
        )

    def start(self) -> None:
        self._driver.post(Start())

    def changed(self, changes: dict[str, int | None]) -> None:
        for path in changes:
            # Published anew, it may be taken now.
            self.view.refused.pop(path, None)
        self._driver.post(Changed(changes))

    @property
    def is_current(self) -> bool:
        return self._replica.is_current

    @property
    def is_degraded(self) -> bool:
        return self._replica.is_degraded

    @property
    def is_settled(self) -> bool:
        """Current, or not reached at the last try: nothing is to be waited for."""
        return self._replica.is_current or self._replica.state in (
            ReplicaState.AWAY,
            ReplicaState.DEGRADED,
            ReplicaState.STOPPED,
        )

    @property
    def state(self) -> str:
        return self._replica.state.value

    def can_judge(self, path: str) -> bool:
        """Whether it has the entry by which a path is found.

        Of what it does not have of us a resolver tells us nothing, which looks like no right at all: one that
        is empty yet, or of another cluster, would end what others have granted.
        """
        published = self._cluster.published
        flags = published.flags_of(path)
        while flags is None or path in self.view.refused:
            if path == "/":
                return False
            path = parent_of(path)
            flags = published.flags_of(path)
            if flags is not None and not flags & DEFAULT:
                flags = None
        return self._replica.has_confirmed(path)

    async def judge(self, claims: Sequence[HeldClaim]) -> dict[HeldClaim, int]:
        """What holders may do now; those are left out that this resolver does not answer for, or cannot."""
        found: dict[HeldClaim, int] = {}
        if self._caller is None:
            return found
        for start in range(0, len(claims), PATHS_PER_CALL_MAX):
            some = list(claims[start : start + PATHS_PER_CALL_MAX])
            try:
                answer = await self.asked(partial(JudgeHolders, claims=some), HoldersJudged)
            except (MoorlineError, TimeoutError) as error:
                why = str(error) or "no answer in time"
                log.warning("%s does not judge: %s; the next one is asked", self.address, why)
                return found
            if len(answer.permissions) != len(some):
                return found
            unknown = set(answer.unknown)
            found |= {
                claim: granted
                for place, (claim, granted) in enumerate(zip(some, answer.permissions, strict=True))
                if place not in unknown
            }
        return found

    async def close(self) -> None:
        """Takes all entries away, if the resolver is there, and leaves."""
        caller = self._caller
        if caller is not None and caller.is_open:
            # One that is silent keeps nobody from leaving: what it has then goes with its time to live.
            own_us = self.view.digest().count * WRITE_ANSWER_US
            patience_ms = min(WRITE_ANSWER_MS, max(CLOSE_ANSWER_MS, own_us / 1_000))
            try:
                async with asyncio.timeout(patience_ms / 1_000):
                    await caller.call(ClosePublisher, PublisherClosed)
            except (MoorlineError, TimeoutError) as error:
                log.info("%s has not confirmed the end of the publisher: %s", self.address, error)
        self._driver.post(Stop())
        self._driver.close()

    # --- what the replica wants done --------------------------------------------------------------

    async def _done(self, work: Coroutine[None, None, Event]) -> Event:
        self._is_busy = True
        try:
            event = await work
        except TimeoutError:
            return self._failed(f"{self.address}: no answer in time")
        except MoorlineError as error:
            return self._failed(str(error), error)
        finally:
            self._is_busy = False
        if self._caller is not None and not self._caller.is_open:
            # Lost behind the last answer: `_lost` left it to us.
            return self._failed(f"{self.address}: the connection was lost")
        return event

    def _failed(self, why: str, error: MoorlineError | None = None) -> Failed:
        self.why, self.error = why, error
        return Failed(why)

    async def _log_in(self) -> Event:
        key = secrets.token_bytes(32)
        self._home.expect(key)
        try:
            caller = await self._home.call(self.address, self._pushed)
            self._caller = caller
            opened = await self.asked(lambda call: self._home.login(call, key), PublisherOpened)
        finally:
            self._home.forget(key)
        self._salt = Salt(opened.salt)
        self.view.refused.clear()
        self._home.opened(self, opened)
        caller.lost.add_done_callback(self._lost)
        return LoggedIn(Digest(opened.count, opened.hash), opened.ttl_ms)

    async def _send(self, effect: SendChanges) -> Event:
        come = [(path, flags) for path, flags in effect.changes.items() if flags is not None]
        gone = [path for path, flags in effect.changes.items() if flags is None]
        digest: Digest | None = None
        if gone:
            digest = await self._unpublish(gone)
        if come or digest is None:
            digest = await self.publish(come)
        return Answered(digest)

    async def _say_heartbeat(self) -> Event:
        own = self.view.digest()
        heard = await self.asked(lambda call: Heartbeat(call, own.count, own.hash), HeartbeatHeard)
        return Answered(Digest(heard.count, heard.hash))

    async def _compare(self, effect: Compare) -> Event:
        exchange = EntryExchange(self, self._cluster.entries)
        digest = await reconcile(
            f"entries at {self.address}", exchange, exchange, self._salt, effect.theirs
        )
        return Answered(digest, has_agreed=True)

    def _disconnect(self) -> None:
        if self._caller is not None:
            self._caller.close("DONE", "the publisher begins anew")
            self._caller = None
        self._home.news(self)

    def _tell_degraded(self, effect: TellDegraded) -> None:
        self.why = effect.why
        if effect.is_degraded:
            log.warning("resolver %s is degraded: %s", self.address, effect.why)
            self._home.degraded(self)
        else:
            log.info("resolver %s is reached again", self.address)
        self._home.news(self)

    def _tell_current(self) -> None:
        self.why, self.error = "", None
        self._home.news(self)

    def _broken(self, error: Exception) -> None:
        log.error("replica at %s broken by a mistake of ours: %s", self.address, error)

    def _lost(self, lost: "asyncio.Future[ConnectionLost | Refused]") -> None:
        # What is under way fails by itself, and is told once.
        if not self._is_busy and self._caller is not None and self._caller.lost is lost:
            self._driver.post(LinkLost(str(lost.result())))

    def _pushed(self, messages: list[Message]) -> None:
        told = [message.at_s for message in messages if isinstance(message, RightsChanged)]
        if told:
            self._home.rights_changed(self, max(told))
            refused = {
                path: self._cluster.published.flags_of(path)
                for path, code in self.view.refused.items()
                if code != REFERRED
            }
            if refused:
                # What was not granted may be now.
                self.changed({path: flags for path, flags in refused.items() if flags is not None})
            # And what was granted may be so no more.
            self._driver.post(Doubted())

    # --- calls ------------------------------------------------------------------------------------

    async def asked(self, make: Make, reply: type[Reply]) -> Reply:
        (answer,) = await self._asked_all([make], 1)
        if isinstance(answer, CallRefused):
            raise CallFailed.of(answer.code, answer.text)
        if not isinstance(answer, reply):
            raise Malformed(f"{self.address}: {type(answer).__name__} is no {reply.__name__}")
        return answer

    async def _asked_all(self, makes: Sequence[Make], operations: int) -> list[Answer]:
        """The timer is that of a hang: every answer begins it anew."""
        caller = self._caller
        if caller is None:
            raise Unreachable(f"{self.address}: not connected")
        patience_s = max(WRITE_ANSWER_MS / 1_000, operations * WRITE_ANSWER_US / 1_000_000)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patience_s) as scope:

            def heard(_: Answer) -> None:
                scope.reschedule(loop.time() + patience_s)

            if len(makes) <= REPLICA_CALLS_AT_ONCE:
                return await caller.call_all(makes, heard=heard)
            return await _in_batches(caller, makes, heard)

    async def publish(self, entries: Sequence[tuple[str, int]]) -> Digest:
        digest: Digest | None = None
        cuts = [
            list(entries[start : start + PATHS_PER_CALL_MAX])
            for start in range(0, len(entries), PATHS_PER_CALL_MAX)
        ] or [[]]
        makes: list[Make] = [partial(PublishPaths, entries=cut) for cut in cuts]
        answers = await self._asked_all(makes, len(entries))
        for cut, answer in zip(cuts, answers, strict=True):
            told = _expected(answer, PathsPublished)
            digest = Digest(told.count, told.hash)
            refused = [(cut[at], code) for at, code in told.refused if at < len(cut)]
            self._tell_refused(refused)
            for entry, code in refused:
                self._refused(entry, code, told.referrals)
        assert digest is not None, "there is a call for nothing too"
        return digest

    def _tell_refused(self, refused: Sequence[tuple[tuple[str, int], str]]) -> None:
        """One line for one call: who may publish nothing of a million paths would fill a disk."""
        not_taken = [(path, code) for (path, _), code in refused if code != REFERRED]
        if not_taken:
            path, code = not_taken[0]
            more = f" and {len(not_taken) - 1} more" if len(not_taken) > 1 else ""
            log.warning("%s does not take %s: %s%s", self.address, path, code, more)

    def _refused(self, entry: tuple[str, int], code: str, referrals: Sequence[Referral]) -> None:
        path, flags = entry
        self.view.refused[path] = code
        if code != REFERRED:
            return
        for referral in referrals:
            if is_at_or_below(path, referral.path):
                self._cluster.refer(referral, path, flags)
                return

    async def _unpublish(self, paths: Sequence[str]) -> Digest:
        digest: Digest | None = None
        makes: list[Make] = [
            partial(UnpublishPaths, paths=list(paths[start : start + PATHS_PER_CALL_MAX]))
            for start in range(0, len(paths), PATHS_PER_CALL_MAX)
        ]
        for answer in await self._asked_all(makes, len(paths)):
            told = _expected(answer, PathsUnpublished)
            digest = Digest(told.count, told.hash)
        assert digest is not None, "something is unpublished"
        return digest


async def _in_batches(caller: Caller, makes: Sequence[Make], heard: Heard) -> list[Answer]:
    """Two batches are on their way: while one is answered, the next is made and sent."""
    answers: list[Answer] = []
    under_way: deque[asyncio.Task[list[Answer]]] = deque()
    try:
        for first in range(0, len(makes), REPLICA_CALLS_AT_ONCE):
            some = makes[first : first + REPLICA_CALLS_AT_ONCE]
            under_way.append(asyncio.create_task(caller.call_all(some, heard=heard)))
            if len(under_way) > 1:
                answers += await under_way.popleft()
        while under_way:
            answers += await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    return answers


def _expected(answer: Answer, reply: type[Reply]) -> Reply:
    if isinstance(answer, CallRefused):
        raise CallFailed.of(answer.code, answer.text)
    if not isinstance(answer, reply):
        raise Malformed(f"{type(answer).__name__} is no {reply.__name__}")
    return answer
