"""Room: core/group. The Leader: the one place that knows a group's progress and who reads which stream.

It leads while its lease in the catalog lasts; whatever happens after that, it says and stores nothing more.
Storing is fenced by its epoch, so that even a Leader that does not know it yet changes nothing.
Design: docs/design/groups.md.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar

import msgspec

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event, Received, Send, SetTimer, TimerFired
from moorline.core.group.commit import Commits
from moorline.core.group.leader_event import (
    Change,
    Commit,
    CommitFailed,
    Committed,
    End,
    Fenced,
    GapFound,
    Kick,
    LeaderOptions,
    LeaseHeld,
    Led,
    ShardsSeen,
    Stopped,
)
from moorline.core.group.lease import Lease, Status, agrees, reported
from moorline.core.group.message import (
    Disconnect,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RevokeFinished,
    UpdateProgress,
)
from moorline.core.group.sharing import Sharing
from moorline.core.group.views import BorrowerView, Lag, ShardView
from moorline.core.machine import Machine
from moorline.core.ranges import Range
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.limits import (
    BORROWERS_DEPARTED_MAX,
    BORROWERS_MAX,
    BORROWERS_STRANGE_MAX,
    FEED_LOSSES_MAX,
)

__all__ = [
    "BorrowerView",
    "Change",
    "Commit",
    "CommitFailed",
    "Committed",
    "End",
    "Fenced",
    "GapFound",
    "Kick",
    "Lag",
    "Leader",
    "LeaderOptions",
    "LeaderState",
    "LeaseHeld",
    "Led",
    "ShardView",
    "ShardsSeen",
    "Stopped",
]


class LeaderState(Enum):
    LEADING = "leading"
    ENDING = "ending"
    STOPPED = "stopped"


class Leader(Machine[LeaderState]):
    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        LeaderState.LEADING: frozenset({LeaderState.ENDING, LeaderState.STOPPED}),
        LeaderState.ENDING: frozenset({LeaderState.STOPPED}),
        LeaderState.STOPPED: frozenset(),
    }

    def __init__(
        self,
        group: str,
        node: str,
        epoch: int,
        cursors: Iterable[tuple[Shard, Cursor]],
        lease_until_ms: int,
        options: LeaderOptions,
    ) -> None:
        super().__init__(f"leader of {group}, epoch {epoch}", LeaderState.LEADING)
        self.node = node
        self.epoch = epoch
        self.options = options
        self._sharing = Sharing(cursors)
        self.shards = self._sharing.shards
        self.borrowers = self._sharing.borrowers
        self.leases = self._sharing.leases
        self._lease_until_ms = lease_until_ms
        # Why those went that are gone: a late word of theirs is answered with it.
        self._departed: dict[str, str] = {}
        # Those who left before they were known: what they asked before may come yet. Apart from the others,
        # and few: anybody can say goodbye, under any name, and what is forgotten is removed by its silence.
        self._strangers: deque[str] = deque(maxlen=BORROWERS_STRANGE_MAX)
        self._commits = Commits(options)
        self._replan_timer = False
        self._idle_since_ms: int | None = None
        self._end_reason = ""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if self.state is LeaderState.STOPPED:
            return []
        if isinstance(event, LeaseHeld):
            self._lease_until_ms = max(self._lease_until_ms, event.until_ms)
        if isinstance(event, Fenced):
            return self._stop("FENCED")
        if now_ms >= self._lease_until_ms:
            # Stopped, partitioned, or too slow: another may lead already.
            return self._stop("LEASE")
        return self._heard(event, now_ms) + self._commit()

    def _heard(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Led():
                self._idle_since_ms = now_ms
                return [SetTimer("tick", self.options.tick_ms)]
            case LeaseHeld():
                return []
            case Committed() | CommitFailed():
                return self._commits.answered(event)
            case TimerFired("commit"):
                self._commits.go_on()
                return []
            case _ if self.state is LeaderState.ENDING:
                return []
            case Received(_, message):
                return self._from_borrower(message, now_ms)
            case ShardsSeen(shard_extents):
                return self._shards_seen(shard_extents, now_ms)
            case TimerFired("tick"):
                return [*self._tick(now_ms), SetTimer("tick", self.options.tick_ms)]
            case TimerFired("replan"):
                self._replan_timer = False
                return self._replan(now_ms)
            case Kick(member):
                return self._kick(member)
            case Change(deliveries_max):
                return self._change(deliveries_max, now_ms)
            case End(reason):
                return self._end(reason)
            case _:
                raise AssertionError(f"a Leader knows no {event}")

    # --- Borrowers speak --------------------------------------------------------------------------

    def _from_borrower(self, message: object, now_ms: int) -> list[Effect]:
        if isinstance(message, LeaderWanted):
            return self._wanted(message, now_ms)
        assert isinstance(message, Ping | UpdateProgress | RevokeFinished | Disconnect), message
        view = self.borrowers.get(message.borrower)
        if view is None or (message.epoch != self.epoch and not isinstance(message, Disconnect)):
            if isinstance(message, Ping | UpdateProgress):
                reason = self._departed.get(message.borrower, "UNKNOWN")
                return [self._invalidation(message.borrower, reason)]
            if view is None and isinstance(message, Disconnect):
                self._strangers.append(message.borrower)
            return []
        view.heard_ms = now_ms
        match message:
            case Ping():
                return self._ping(view, message)
            case UpdateProgress():
                view.number = max(view.number, message.number)
                return self._update(view, message, now_ms)
            case RevokeFinished(lease=number, lost=lost):
                view.number = max(view.number, message.number)
                lease = view.leases.get(number)
                if lease is None or lease.status is not Status.REVOKED:
                    return []
                gaps = self._lose(lease, lost)
                self._drop(lease)
                return gaps + self._replan(now_ms)
            case Disconnect(epoch=epoch, cursors=cursors, lost=lost):
                # Under another Leader the numbers were those of other leases.
                held = view.leases if epoch == self.epoch else {}
                gaps = [
                    gap
                    for number, several in lost
                    if number in held
                    for gap in self._lose(held[number], several)
                ]
                for number, cursor in cursors:
                    if number in held:
                        self._merge(held[number], cursor)
                return gaps + self._remove(view, "LEFT")

    def _wanted(self, wanted: LeaderWanted, now_ms: int) -> list[Effect]:
        reason = self._departed.get(wanted.borrower)
        if reason is None and wanted.borrower in self._strangers:
            reason = "LEFT"
        if reason is not None:
            # It may still be there and have missed that it was removed: it must not ask for ever.
            return [self._invalidation(wanted.borrower, reason)]
        effects: list[Effect] = []
        view = self.borrowers.get(wanted.borrower)
        if view is None:
            if len(self.borrowers) >= BORROWERS_MAX:
                # Said, and not passed over: it would wait for messages that never come.
                return [self._invalidation(wanted.borrower, "FULL")]
            view = self.borrowers[wanted.borrower] = BorrowerView(wanted, now_ms)
            self._idle_since_ms = None
            effects = self._replan_soon()
        view.heard_ms = now_ms
        return [Send(view.id, LeaderConnectResponse(view.id, self.epoch, self.node)), *effects]

    def _ping(self, view: BorrowerView, ping: Ping) -> list[Effect]:
        is_newest = ping.number > view.number
        view.number = max(view.number, ping.number)
        if is_newest and not agrees(ping.digest, view.leases.values()):
            return self._expel(view, "DISAGREED")  # it begins anew, with nothing
        heard = reported(view.leases.values())
        return [Send(view.id, PingResponse(view.id, self.epoch, ping.number, heard))]

    def _update(self, view: BorrowerView, update: UpdateProgress, now_ms: int) -> list[Effect]:
        lease = view.leases.get(update.lease)
        if lease is None:
            if self._sharing.was_granted(update.lease):
                # A lease that is over here, from a report that came late or twice; if the Borrower
                # really holds it, its next ping shows that.
                return []
            return self._expel(view, "DISAGREED")
        gaps: list[Effect] = []
        if update.cursor is not None:
            # First what is lost: the place has passed it, as if it had been acknowledged.
            gaps = self._lose(lease, update.lost)
            lease.delivered = max(lease.delivered, update.delivered)
            lease.reported = max(lease.reported, update.number)
            is_new = self._merge(lease, update.cursor)
            if self._returned(lease, update.returned) or is_new or gaps:
                lease.progress_ms = now_ms
        if update.final and lease.status is not Status.REVOKED:
            # Also of one that is still being granted: a Borrower that has forgotten it never begins it.
            lease.move(Status.REVOKING, now_ms)
            lease.move(Status.REVOKED, now_ms)
            return [*gaps, self._say(lease, now_ms)]
        if lease.status is Status.GRANTING:
            lease.move(Status.GRANTED, now_ms)
            lease.progress_ms = now_ms
        finished = self._finish_if_done(lease, now_ms)
        if lease.status is Status.GRANTED and len(update.lost) >= FEED_LOSSES_MAX:
            # It reads no more: its reports would outgrow a frame. The rest follows under a new lease.
            finished = [self._take_back(lease, now_ms)]
        return gaps + finished

    def _lose(self, lease: Lease, lost: Iterable[Gap]) -> list[Effect]:
        """A member told its client that these are gone; what others told before is not counted again."""
        view = self.shards[lease.stream.shard]
        found = view.lose(lost)
        if found:
            self._commits.note(view.shard)
        return [GapFound(view.shard, *gap) for gap in found]

    def _merge(self, lease: Lease, cursor: Cursor) -> bool:
        """Whether there was anything new in it."""
        view = self.shards[lease.stream.shard]
        is_new = view.progress.merge(cursor)
        if is_new:
            self._commits.note(view.shard)
        return is_new

    def _returned(self, lease: Lease, returned: tuple[Range, ...]) -> bool:  # noqa: ARG002
        """A member gave messages back; only where members share the messages of a stream."""
        return False

    def _finish_if_done(self, lease: Lease, now_ms: int) -> list[Effect]:
        """A stream that is sealed and read to its end goes back by itself."""
        if lease.status is Status.REVOKED or not self._is_done(lease):
            return []
        lease.move(Status.REVOKING, now_ms)
        lease.move(Status.REVOKED, now_ms)
        return [self._say(lease, now_ms)]

    def _is_done(self, lease: Lease) -> bool:
        view = self.shards[lease.stream.shard]
        extent = view.extent_of(lease.stream)
        if extent is None:
            # Retention took it. What the client has in hand may still be acknowledged, and of the rest it is
            # told; when all of that is known, the next one begins.
            return bool(view.extents) and view.progress.low >= view.first
        return extent.sealed and view.progress.low >= extent.end

    # --- streams come and go ----------------------------------------------------------------------

    def _shards_seen(
        self, shard_extents: Iterable[tuple[Shard, tuple[Extent, ...], int]], now_ms: int
    ) -> list[Effect]:
        effects: list[Effect] = []
        for shard, extents, start in shard_extents:
            view = self.shards.get(shard)
            if view is None:
                view = self.shards[shard] = ShardView(shard, Cursor(start))
                self._commits.note(shard)
            view.extents = extents
            for lease in list(view.leases.values()):
                if lease.gone_ms is None and view.extent_of(lease.stream) is None:
                    lease.gone_ms = now_ms
                effects += self._finish_if_done(lease, now_ms)
        return effects + self._replan_shards(now_ms)

    def _replan_shards(self, now_ms: int) -> list[Effect]:
        """Streams have grown, which changes no plan, or there is one that nobody has."""
        is_new = any(not view.leases and view.current() for view in self.shards.values())
        return self._replan(now_ms) if is_new else []

    # --- who reads what ---------------------------------------------------------------------------

    def _replan_soon(self) -> list[Effect]:
        """Joins and leaves come in crowds: a short wait makes one plan of them."""
        if self._replan_timer:
            return []
        self._replan_timer = True
        return [SetTimer("replan", self.options.replan_ms)]

    def _replan(self, now_ms: int) -> list[Effect]:
        if not self.borrowers:
            return []
        plan = self._sharing.plan()
        effects: list[Effect] = []
        for shard, _ in plan.revokes:
            (lease,) = self.shards[shard].leases.values()
            effects.append(self._take_back(lease, now_ms))
        for shard, borrower in plan.grants:
            extent = self.shards[shard].current()
            assert extent is not None
            effects.append(self._grant(extent.stream, borrower, now_ms))
        return effects

    def _grant(
        self, stream: Stream, borrower: str, now_ms: int, ranges: tuple[Range, ...] | None = None
    ) -> Effect:
        return self._say(self._sharing.grant(stream, borrower, now_ms, ranges), now_ms)

    def _take_back(self, lease: Lease, now_ms: int) -> Effect:
        lease.move(Status.REVOKING, now_ms)
        return self._say(lease, now_ms)

    def _say(self, lease: Lease, now_ms: int) -> Effect:
        lease.sent_ms = now_ms
        message = lease.message(self.epoch, self._cursor_for(lease), self.options.deliveries_max)
        assert message is not None
        return Send(lease.borrower, message)

    def _cursor_for(self, lease: Lease) -> Cursor:
        """What the Borrower must know of the progress: all of it."""
        return self.shards[lease.stream.shard].progress.cursor()

    def _drop(self, lease: Lease) -> None:
        self._sharing.drop(lease)

    # --- Borrowers go -----------------------------------------------------------------------------

    def _remove(self, view: BorrowerView, reason: str) -> list[Effect]:
        for lease in list(view.leases.values()):
            self._drop(lease)
        del self.borrowers[view.id]
        self._depart(view.id, reason)
        return self._replan_soon()

    def _expel(self, view: BorrowerView, reason: str) -> list[Effect]:
        return [self._invalidation(view.id, reason), *self._remove(view, reason)]

    def _blame(self, view: BorrowerView) -> None:
        """A member is gone without a word: what it was at, stream by stream, counts as failed."""
        for lease in view.leases.values():
            shard_view = self.shards[lease.stream.shard]
            open_ranges = shard_view.progress.open_ranges(shard_view.progress.low, lease.delivered)
            if open_ranges:
                shard_view.progress.fail(open_ranges[0][0])
                self._commits.note(shard_view.shard)

    def _depart(self, borrower: str, reason: str) -> None:
        self._departed.setdefault(borrower, reason)
        if len(self._departed) > BORROWERS_DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]

    def _invalidation(self, borrower: str, reason: str) -> Effect:
        return Send(borrower, Invalidate(borrower, self.epoch, reason))

    def _tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for view in list(self.borrowers.values()):
            late = [
                lease
                for lease in view.leases.values()
                if lease.status is Status.REVOKING
                and now_ms - lease.since_ms >= self.options.revoke_ms
            ]
            if late or now_ms - view.heard_ms >= self.options.borrower_ms:
                self._blame(view)
                effects += self._expel(view, "REVOKE_DEADLINE" if late else "SILENT")
        for lease in list(self.leases.values()):
            if lease.status is not Status.GRANTED:
                if now_ms - lease.sent_ms >= self.options.resend_ms:
                    effects.append(self._say(lease, now_ms))
            elif self._is_overdue(lease, now_ms):
                effects.append(self._take_back(lease, now_ms))
        if not self.borrowers:
            if self._idle_since_ms is None:
                self._idle_since_ms = now_ms
            elif now_ms - self._idle_since_ms >= self.options.idle_ms:
                return effects + self._end("IDLE")
        return effects + self._replan(now_ms)

    def _is_overdue(self, lease: Lease, now_ms: int) -> bool:
        """The stream is gone, and its member holds the group up with what it has in hand of it."""
        is_gone = lease.ranges is None and lease.gone_ms is not None
        return is_gone and now_ms - (lease.gone_ms or 0) >= self.options.revoke_ms

    # --- what operators ask for -------------------------------------------------------------------

    def _kick(self, member: str) -> list[Effect]:
        effects: list[Effect] = []
        for view in list(self.borrowers.values()):
            if member in (view.member, view.id):
                self._blame(view)
                effects += self._expel(view, "KICKED")
        return effects

    def _change(self, deliveries_max: int, now_ms: int) -> list[Effect]:
        """Those who have a stream were granted it with the old limit: it goes back, and is granted again."""
        self.options = msgspec.structs.replace(self.options, deliveries_max=deliveries_max)
        return self._regrant(now_ms)

    def _regrant(self, now_ms: int) -> list[Effect]:
        return [
            self._take_back(lease, now_ms)
            for lease in list(self.leases.values())
            if lease.status in (Status.GRANTING, Status.GRANTED)
        ]

    def _end(self, reason: str) -> list[Effect]:
        effects: list[Effect] = []
        for view in list(self.borrowers.values()):
            effects += self._expel(view, reason)
        self._end_reason = reason
        self.move(LeaderState.ENDING)
        return effects

    # --- storing ----------------------------------------------------------------------------------

    def _commit(self) -> list[Effect]:
        # What was deleted or moved has nothing of ours to keep; the catalog would refuse it.
        is_kept = self._end_reason not in ("DELETED", "SOUGHT")
        commit = self._commits.next(self.shards) if is_kept else None
        if commit is not None:
            return [commit]
        if self.state is LeaderState.ENDING and not self._commits.is_busy:
            return self._stop(self._end_reason)
        return []

    def _stop(self, reason: str) -> list[Effect]:
        self.move(LeaderState.STOPPED)
        return [Stopped(reason)]

    # --- for those who look -----------------------------------------------------------------------

    def lags(self) -> list[Lag]:
        return self._sharing.lags()
