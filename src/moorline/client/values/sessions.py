"""Room: client. The subscribers of a publisher: what they ask, whether they may, and for how long.

A claim is checked first and the path then: what is published is told to nobody who could not have it. What
was granted is asked for again when rights change, and when less than half of a token's life is left to it;
what no resolver has confirmed for that long ends. A token counts until it expires, however late it is shown.
"""

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from moorline.client.values.door import TokenCheck
from moorline.client.values.follower import Follower, Held
from moorline.client.values.frames import check_value, size_of
from moorline.client.values.members import HeldClaim, Member
from moorline.core.access.right import SUBSCRIBE, WRITE
from moorline.core.directory.path import is_path, parent_of
from moorline.core.values.batch import Outlet
from moorline.core.values.board import Board
from moorline.errors import CallFailed, Denied, MoorlineError, NoSuchValue, NotFound
from moorline.limits import (
    DOUBTED_MS_MAX,
    ON_DEMAND_AT_ONCE_MAX,
    ON_DEMAND_MS_MAX,
    SUBSCRIBED_BYTES_MAX,
    WRITER_MS_MAX,
    WRITES_AHEAD_MAX,
)
from moorline.net.clock import monotonic_ms, wall_ms
from moorline.net.session import Handlers, Session, each
from moorline.net.slices import done, in_slices
from moorline.net.tasks import Tasks
from moorline.wire.message import Answer, Failed
from moorline.wire.resolver import Holder
from moorline.wire.value import (
    AGAIN,
    SubscribedValue,
    SubscribeValues,
    UnsubscribeValues,
    ValuesSubscribed,
    ValuesUnsubscribed,
    ValueWritten,
    WriteValue,
)

log = logging.getLogger("moorline.client")

CLAIMS_AT_ONCE = 200
"""Claims of a call that is answered where it is heard: their tokens take half a millisecond."""

EXPIRED = "EXPIRED"


class Publishing(Protocol):
    """The publisher, as its sessions see it."""

    board: Board[Follower]
    values: dict[int, Any]
    defaults: dict[str, Any]
    tokens: TokenCheck
    settings: Any

    def made(self, path: str, value: Any) -> Any: ...
    def abandoned(self, one: int) -> None: ...
    def judges(self) -> list[Member]: ...


class ValueSessions:
    """Everybody who is connected, and what each follows."""

    def __init__(self, publisher: Publishing) -> None:
        self._publisher = publisher
        self._followers: dict[Session, Follower] = {}
        self._tasks = Tasks("what a subscriber asked for failed")
        self._making: dict[str, asyncio.Task[str]] = {}
        self._awaited: Counter[str] = Counter()
        """Paths of calls that wait for a value on demand."""
        self._judging: asyncio.Task[None] | None = None
        self._is_judged_again = False
        self._has_unjudged = False
        """Nobody could say at the last try what some of them may do."""
        self.handlers: Handlers = {
            SubscribeValues: self._subscribe,
            UnsubscribeValues: each(self._unsubscribe),
            WriteValue: self._write,
        }

    # --- subscriptions ----------------------------------------------------------------------------

    def _subscribe(self, session: Session, calls: list[SubscribeValues]) -> Iterable[Answer]:
        for call in calls:
            steps = self._publisher.tokens.judging(call, session.identity)
            if self._publisher.tokens.is_doubtful(call.resolver, call.expires_s):
                # Who was cut by a change could come back with what it has kept, for a token's life.
                self._tasks.spawn(self._subscribe_judged(session, call, steps))
                continue
            if len(call.claims) > CLAIMS_AT_ONCE:
                # Thousands of tokens take longer than others should wait for.
                self._tasks.spawn(self._subscribe_in_slices(session, call, steps))
                continue
            refused = done(steps)
            wanted = self._on_demand(call, refused)
            if wanted:
                # Its answer waits for what is made; others are not kept waiting by it.
                self._tasks.spawn(self._subscribe_later(session, call, refused, wanted))
            else:
                yield self._subscribed(session, call, refused, {})

    async def _subscribe_in_slices(
        self, session: Session, call: SubscribeValues, steps: Generator[None, None, Sequence[str]]
    ) -> None:
        refused = await in_slices(steps, session.identity.principal)
        await self._subscribe_later(session, call, refused, self._on_demand(call, refused))

    async def _subscribe_judged(
        self, session: Session, call: SubscribeValues, steps: Generator[None, None, Sequence[str]]
    ) -> None:
        """By tokens from before a change of rights: a resolver says first what they give now."""
        refused = list(await in_slices(steps, session.identity.principal))
        asked = {
            (path, permissions, call.holder)
            for (path, permissions, _), why in zip(call.claims, refused, strict=True)
            if not why
        }
        found: dict[HeldClaim, int] = {}
        # Where nobody says anything in time the token counts, for what is left of its life.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DOUBTED_MS_MAX / 1_000):
                await self._ask(asked, self._publisher.tokens.signer(call.resolver), found.update)
        claims = list(call.claims)
        for place, (path, permissions, token) in enumerate(call.claims):
            granted = found.get((path, permissions, call.holder))
            if granted is None or refused[place]:
                continue
            claims[place] = (path, permissions & granted, token)
            if not granted & SUBSCRIBE:
                refused[place] = "the right was taken away behind the making of the token"
        call = msgspec.structs.replace(call, claims=claims)
        await self._subscribe_later(session, call, refused, self._on_demand(call, refused))

    def _on_demand(self, call: SubscribeValues, refused: Iterable[str]) -> list[str]:
        """Paths of the call that are granted, not there, and below a default."""
        if not self._publisher.defaults:
            return []
        granted = [claim[0] for claim, why in zip(call.claims, refused, strict=True) if not why]
        return [
            path
            for path in granted
            if self._publisher.board.id_of(path) is None and self._default_of(path) is not None
        ]

    def _default_of(self, path: str) -> str | None:
        """The nearest default above it, by levels: that of /a/b before that of /a, and none for /a-b."""
        while path != "/":
            path = parent_of(path)
            if path in self._publisher.defaults:
                return path
        return None

    async def _subscribe_later(
        self, session: Session, call: SubscribeValues, refused: Iterable[str], wanted: list[str]
    ) -> None:
        failed: dict[str, str] = {}
        # Those that wait are counted, not what is made: a thousand may wait for one.
        if self._awaited.total() + len(wanted) > ON_DEMAND_AT_ONCE_MAX:
            failed = dict.fromkeys(wanted, "BUSY")
        else:
            self._awaited.update(wanted)
            try:
                codes = await asyncio.gather(*map(self._made, wanted))
            finally:
                self._awaited -= Counter(wanted)
            failed = {path: code for path, code in zip(wanted, codes, strict=True) if code}
        await session.room_to_write()
        if session.is_open:
            session.answer([self._subscribed(session, call, refused, failed)])
        else:
            self._forget_unused(wanted)

    def _forget_unused(self, paths: Iterable[str]) -> None:
        """Who asked for them has gone: nobody else would ever have them forgotten."""
        board = self._publisher.board
        for path in paths:
            one = board.id_of(path)
            if one is not None and not board.followers_of(one) and path not in self._awaited:
                self._publisher.abandoned(one)

    async def _made(self, path: str) -> str:
        """Has the value of a path made, once for all who ask meanwhile; empty, or why there is none."""
        under_way = self._making.get(path)
        if under_way is None:
            under_way = self._making[path] = asyncio.ensure_future(self._make(path))
            under_way.add_done_callback(lambda _: self._making.pop(path, None))
        # Who goes away while it waits does not take it from the others.
        return await asyncio.shield(under_way)

    async def _make(self, path: str) -> str:
        root = self._default_of(path)
        if root is None or not is_path(path):
            return NoSuchValue.code
        try:
            value = self._publisher.defaults[root](path)
            if inspect.isawaitable(value):
                async with asyncio.timeout(ON_DEMAND_MS_MAX / 1_000):
                    value = await value
            if self._publisher.board.id_of(path) is None:
                self._publisher.made(path, value)
        except NotFound:
            return NoSuchValue.code
        except Exception:
            log.exception("a value could not be made", extra={"path": path})
            return "FAILED"
        return ""

    def _subscribed(
        self,
        session: Session,
        call: SubscribeValues,
        refused: Iterable[str],
        failed: dict[str, str],
    ) -> ValuesSubscribed:
        """All of one call at one moment: their values are of the same commit."""
        board = self._publisher.board
        follower = self._follower(session, is_conflating=call.conflate)
        # Shown late, it gives what is left of it: a right that was taken away in between has that bound too.
        left_ms = max(0, call.expires_s * 1_000 - wall_ms())
        until_ms = _within_proof(
            call.holder, monotonic_ms() + min(self._publisher.tokens.life_ms, left_ms)
        )
        answers: list[SubscribedValue] = []
        followed: list[int] = []
        unasked: list[str] = []
        room = SUBSCRIBED_BYTES_MAX
        for (path, permissions, _), why in zip(call.claims, refused, strict=True):
            one = board.id_of(path) if not why else None
            if why or one is None:
                code = Denied.code if why else failed.get(path, NoSuchValue.code)
                answers.append(SubscribedValue(code))
                continue
            value = board.value_of(one)
            room -= size_of(value)
            if room < 0 and followed:
                # An answer is one message, and that is one frame: the others are asked for again.
                room = 0
                answers.append(SubscribedValue(AGAIN))
                unasked.append(path)
                continue
            followed.append(one)
            follower.held[one] = Held(path, permissions, call.holder, until_ms)
            answers.append(SubscribedValue("", one, value))
        follower.outlet.leave_out(followed)
        board.follow(follower, followed)
        self._forget_unused(unasked)
        return ValuesSubscribed(call.call, answers)

    def _follower(self, session: Session, *, is_conflating: bool) -> Follower:
        follower = self._followers.get(session)
        if follower is None:
            settings = self._publisher.settings
            outlet = Outlet(
                is_conflating=is_conflating,
                batches_max=settings.batches_max,
                bytes_max=settings.bytes_max,
            )
            follower = self._followers[session] = Follower(session, outlet)
            session.at_end(lambda: self._gone(session))
        # One that wants every batch of some wants it of all: they come by one queue.
        follower.outlet.is_conflating = follower.outlet.is_conflating and is_conflating
        return follower

    def _gone(self, session: Session) -> None:
        follower = self._followers.pop(session)
        follower.close()
        self._leave(follower, list(follower.held))

    def _leave(self, follower: Follower, ids: list[int]) -> None:
        board = self._publisher.board
        board.unfollow(follower, ids)
        for one in ids:
            follower.held.pop(one, None)
            if not board.followers_of(one):
                self._publisher.abandoned(one)

    def _unsubscribe(self, session: Session, call: UnsubscribeValues) -> Answer:
        follower = self._followers.get(session)
        if follower is not None:
            self._leave(follower, [one for one in call.ids if one in follower.held])
        return ValuesUnsubscribed(call.call)

    # --- writing back -----------------------------------------------------------------------------

    def _write(self, session: Session, calls: list[WriteValue]) -> Iterable[Answer]:
        answers: list[Answer] = []
        for call in calls:
            try:
                writer, principal = self._writer_of(session, call)
            except CallFailed as error:
                answers.append(Failed(call.call, error.code, str(error)))
                continue
            follower = self._followers[session]
            is_answered = not call.wants_receipt and follower.writing < WRITES_AHEAD_MAX
            if is_answered:
                answers.append(ValueWritten(call.call))
            # Beyond so many that nobody waits for, the answer waits: so what is under way is bounded.
            follower.writing += 1
            self._tasks.spawn(
                self._written(follower, call, writer, principal, is_answered=is_answered)
            )
        return answers

    def _writer_of(self, session: Session, call: WriteValue) -> tuple[Any, str]:
        follower = self._followers.get(session)
        held = follower.held.get(call.id) if follower is not None else None
        if held is None:
            raise NotFound("you are not subscribed to that value")
        if not held.permissions & WRITE:
            raise Denied(f"{held.path}: no right to write is granted to {held.holder.principal}")
        value = self._publisher.values.get(call.id)
        if value is None or value.writer is None:
            raise CallFailed(f"{held.path} takes no values back")
        return value.writer, held.holder.principal

    async def _written(
        self,
        follower: Follower,
        call: WriteValue,
        writer: Any,
        principal: str,
        *,
        is_answered: bool,
    ) -> None:
        answer: Answer
        try:
            async with asyncio.timeout(WRITER_MS_MAX / 1_000):
                said = writer(call.value, principal)
                said = await said if inspect.isawaitable(said) else said
            check_value(said)
            answer = ValueWritten(call.call, said if call.wants_receipt else None)
        except TimeoutError:
            answer = Failed(call.call, "FAILED", f"no word of its writer within {WRITER_MS_MAX} ms")
        except MoorlineError as error:
            answer = Failed(call.call, error.code, str(error))
        except Exception as error:
            log.exception("a writer failed")
            answer = Failed(call.call, "FAILED", f"the publisher failed: {type(error).__name__}")
        finally:
            follower.writing -= 1
        if not is_answered and follower.session.is_open:
            follower.session.answer([answer])

    # --- heartbeats and verdicts ------------------------------------------------------------------

    async def beat_forever(self) -> None:
        """Says to all that we are there, and looks what was granted too long ago."""
        heartbeat_ms = self._publisher.settings.heartbeat_ms
        while True:
            life_ms = self._publisher.tokens.life_ms
            pause_ms = heartbeat_ms if not life_ms else min(heartbeat_ms, max(10, life_ms // 8))
            await asyncio.sleep(pause_ms / 1_000)
            for follower in list(self._followers.values()):
                follower.say_alive(heartbeat_ms)
            if life_ms and self._has_unjudged:
                self.judge_soon(None)
            elif (
                life_ms
                and self._judging is None
                and self._asked_about(monotonic_ms() + life_ms // 2)
            ):
                self._judging = asyncio.create_task(self._judge(None, is_all=False))
            self._end_unconfirmed()

    def _end_unconfirmed(self) -> None:
        now_ms = monotonic_ms()
        for follower in list(self._followers.values()):
            late = [one for one, held in follower.held.items() if held.until_ms <= now_ms]
            if late:
                self._end(follower, late, EXPIRED)

    def _end(self, follower: Follower, ids: list[int], code: str) -> None:
        self._leave(follower, ids)
        follower.end(ids, code)

    def judge_soon(self, member: Member | None) -> None:
        """Asks what everybody may do now: that resolver, or any."""
        if self._judging is not None:
            self._is_judged_again = True
            return
        self._judging = asyncio.create_task(self._judge(member, is_all=True))

    async def _judge(self, member: Member | None, *, is_all: bool) -> None:
        try:
            while True:
                self._is_judged_again = False
                await self._judge_once(member, is_all=is_all)
                if not self._is_judged_again:
                    return
                is_all = True
        finally:
            self._judging = None

    def _asked_about(self, until_ms: int | None) -> set[HeldClaim]:
        """What was granted, or of that what is not confirmed beyond then. Who shows old tokens has its own
        asked about more often, and nobody else's."""
        return {
            (held.path, held.permissions, held.holder)
            for follower in self._followers.values()
            for held in follower.held.values()
            if until_ms is None or held.until_ms <= until_ms
        }

    async def _judge_once(self, member: Member | None, *, is_all: bool) -> None:
        asked_ms = monotonic_ms()
        half_ms = self._publisher.tokens.life_ms // 2
        waiting = self._asked_about(None if is_all else asked_ms + half_ms)
        # The one that told us of the change first: another may not have heard of it yet.
        await self._ask(waiting, member, partial(self._judged, asked_ms=asked_ms))
        if is_all:
            self._has_unjudged = bool(waiting)

    async def _ask(
        self,
        waiting: set[HeldClaim],
        first: object,
        told: Callable[[dict[HeldClaim, int]], None],
    ) -> None:
        """One resolver after the other; what none of them can judge is left in `waiting`."""
        for judge in sorted(self._publisher.judges(), key=lambda one: one is not first):
            claims = [claim for claim in waiting if judge.can_judge(claim[0])]
            found = await judge.judge(claims) if claims else {}
            told(found)
            # What it cannot judge, another one may: one resolver's silence ends nothing.
            waiting.difference_update(found)

    def _judged(self, found: dict[HeldClaim, int], asked_ms: int) -> None:
        until_ms = asked_ms + self._publisher.tokens.life_ms
        for follower in list(self._followers.values()):
            denied: list[int] = []
            for one, held in follower.held.items():
                granted = found.get((held.path, held.permissions, held.holder))
                if granted is None:
                    continue  # it came meanwhile, with a fresh token
                if not granted & SUBSCRIBE:
                    denied.append(one)
                    continue
                held.until_ms = max(held.until_ms, _within_proof(held.holder, until_ms))
                # Never more than the token gave: what is granted since needs a new one.
                held.permissions &= granted
            if denied:
                self._end(follower, denied, Denied.code)

    def close(self) -> None:
        if self._judging is not None:
            self._judging.cancel()
        self._tasks.cancel()
        for follower in self._followers.values():
            follower.close()


def _within_proof(holder: Holder, until_ms: int) -> int:
    """Until then, or until the proof of the holder ends, if that is before."""
    if not holder.ends_s:
        return until_ms
    return min(until_ms, monotonic_ms() + holder.ends_s * 1_000 - wall_ms())
