"""Room: core/group. The Leader: the one place that knows a group's progress and who reads which stream.

It leads while its lease in the catalog lasts; whatever happens after that, it says and stores nothing more.
Storing is fenced by its epoch, so that even a Leader that does not know it yet changes nothing.

    this file                 for how long it may speak, who is there, what operators ask for, how it ends
    core/group/lending.py     who reads what, and what reports do to the progress
    core/group/commit.py      what of it is not stored yet

Invariants, looked at by `check`, with those of the lending (G1 to G3):

    L1  whoever is there is not among those that are gone, or it would be answered as both
    L2  a Leader that ends has sent everybody away, and knows why
    L3  it counts as idle only while nobody is there
    L4  members, and those remembered that were, are no more than their bounds

Design: docs/design/groups.md.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event, Received, Send, SetTimer, TimerFired
from moorline.core.group.events import (
    Change,
    CommitFailed,
    Committed,
    End,
    EndsSeen,
    Fenced,
    Kick,
    LeaderOptions,
    LeaseHeld,
    Led,
    LookAtEnds,
    ShardsSeen,
    Stopped,
)
from moorline.core.group.lending import StreamLending
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
from moorline.core.group.stream_lease import Status, agrees, reported
from moorline.core.group.views import BorrowerView, Lag
from moorline.core.machine import Machine
from moorline.core.stream import Shard
from moorline.limits import BORROWERS_DEPARTED_MAX, BORROWERS_MAX, BORROWERS_STRANGE_MAX


class LeaderState(Enum):
    LEADING = "leading"
    ENDING = "ending"
    STOPPED = "stopped"


class Leader(Machine[LeaderState]):
    """Of a `$shared` group; that of a `$queue` group lends in another way (core/group/queue_leader.py)."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        LeaderState.LEADING: frozenset({LeaderState.ENDING, LeaderState.STOPPED}),
        LeaderState.ENDING: frozenset({LeaderState.STOPPED}),
        LeaderState.STOPPED: frozenset(),
    }
    lending_kind: ClassVar[type[StreamLending]] = StreamLending

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
        self.lending = self.lending_kind(epoch, cursors, options)
        self.shards = self.lending.shards
        self.borrowers = self.lending.borrowers
        self.leases = self.lending.leases
        self._lease_until_ms = lease_until_ms
        # Why those went that are gone: a late word of theirs is answered with it.
        self._departed: dict[str, str] = {}
        # Those who left before they were known: what they asked before may come yet. Apart from the others,
        # and few: anybody can say goodbye, under any name, and what is forgotten is removed by its silence.
        self._strangers: deque[str] = deque(maxlen=BORROWERS_STRANGE_MAX)
        self._replan_timer = False
        self._idle_since_ms: int | None = None
        self._end_reason = ""

    @property
    def options(self) -> LeaderOptions:
        return self.lending.options

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if self.state is LeaderState.STOPPED:
            return []
        # A renewal counts before the lease is looked at: one that was asked in time, and is heard late, still
        # says that nobody else leads.
        if isinstance(event, LeaseHeld):
            self._lease_until_ms = max(self._lease_until_ms, event.until_ms)
        if isinstance(event, Fenced):
            return self._stop("FENCED")
        # Before the event is even looked at, whatever it is: a process that was stopped for minutes wakes
        # with its events still in the inbox, and another may lead already (I12).
        if now_ms >= self._lease_until_ms:
            return self._stop("LEASE")
        # The commit is last: it takes with it what this very event has changed.
        return self._heard(event, now_ms) + self._commit()

    def _heard(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Led():
                self._idle_since_ms = now_ms
                return [SetTimer("tick", self.options.tick_ms), *self._look_later()]
            case LeaseHeld():
                return []
            case Committed() | CommitFailed():
                return self.lending.commits.answered(event)
            case TimerFired("commit"):
                self.lending.commits.go_on()
                return []
            # What is above is heard to the end: an ENDING Leader waits for its last commit. What is below
            # would change what that commit says.
            case _ if self.state is LeaderState.ENDING:
                return []
            case Received(_, message):
                return self._from_borrower(message, now_ms)
            case ShardsSeen(shard_extents):
                return self.lending.seen(shard_extents, now_ms)
            case TimerFired("tick"):
                return [*self._tick(now_ms), SetTimer("tick", self.options.tick_ms)]
            case TimerFired("replan"):
                self._replan_timer = False
                return self.lending.replan(now_ms)
            case TimerFired("load"):
                return [LookAtEnds(), *self._look_later()]
            case EndsSeen(ends):
                return self.lending.saw_ends(dict(ends), now_ms)
            case Kick(member):
                return self._kick(member)
            case Change(deliveries_max):
                return self.lending.change(deliveries_max, now_ms)
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
        # A goodbye is heard under any epoch: whoever leaves leaves. It is the lending that does not take its
        # cursors then.
        if view is None or (message.epoch != self.epoch and not isinstance(message, Disconnect)):
            return self._from_nobody(message, is_known=view is not None)
        # Whatever it says is a sign of life, an old report too.
        view.heard_ms = now_ms
        match message:
            case Ping():
                return self._ping(view, message)
            case UpdateProgress():
                # Never back: a late message must not make an older ping the newest one again.
                view.number = max(view.number, message.number)
                return self._update(view, message, now_ms)
            case RevokeFinished(lease=number, lost=lost):
                view.number = max(view.number, message.number)
                lease = view.leases.get(number)
                if lease is None or lease.status is not Status.REVOKED:
                    # A repetition. While it is REVOKING its last report is not here: not to be dropped yet.
                    return []
                return self.lending.returned(lease, lost, now_ms)
            case Disconnect():
                gaps = self.lending.take_goodbye(view, message)
                return gaps + self._remove(view, "LEFT")

    def _from_nobody(
        self, message: Ping | UpdateProgress | RevokeFinished | Disconnect, *, is_known: bool
    ) -> list[Effect]:
        """From a Borrower that is not there, or that is under another epoch."""
        if isinstance(message, Ping | UpdateProgress):
            # It believes that it holds something: it must hear that it does not, with the reason that it
            # missed.
            reason = self._departed.get(message.borrower, "UNKNOWN")
            return [self._invalidation(message.borrower, reason)]
        if not is_known and isinstance(message, Disconnect):
            # Its LeaderWanted may be behind this, on a net that reorders: it would join a member that is
            # gone, and hold streams up until its silence is noticed.
            self._strangers.append(message.borrower)
        return []

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
        self.lending.joined(view)
        # Asked twice, answered twice: the first answer may be lost.
        return [Send(view.id, LeaderConnectResponse(view.id, self.epoch, self.node)), *effects]

    def _ping(self, view: BorrowerView, ping: Ping) -> list[Effect]:
        # One that was overtaken says what its Borrower held before: to compare it would end a good member.
        is_newest = ping.number > view.number
        view.number = max(view.number, ping.number)
        if is_newest and not agrees(ping.digest, view.leases.values()):
            return self._expel(view, "DISAGREED")  # it begins anew, with nothing
        heard = reported(view.leases.values())
        return [Send(view.id, PingResponse(view.id, self.epoch, ping.number, heard))]

    def _update(self, view: BorrowerView, update: UpdateProgress, now_ms: int) -> list[Effect]:
        lease = view.leases.get(update.lease)
        if lease is not None:
            return self.lending.reported(lease, update, now_ms)
        if self.lending.sharing.was_granted(update.lease):
            # A lease that is over here, from a report that came late or twice; if the Borrower
            # really holds it, its next ping shows that.
            return []
        return self._expel(view, "DISAGREED")

    # --- Borrowers go -----------------------------------------------------------------------------

    def _remove(self, view: BorrowerView, reason: str) -> list[Effect]:
        self.lending.left(view)
        # The first reason stays: who was kicked and then says goodbye was kicked.
        self._departed.setdefault(view.id, reason)
        if len(self._departed) > BORROWERS_DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]
        return self._replan_soon()

    def _expel(self, view: BorrowerView, reason: str) -> list[Effect]:
        return [self._invalidation(view.id, reason), *self._remove(view, reason)]

    def _invalidation(self, borrower: str, reason: str) -> Effect:
        return Send(borrower, Invalidate(borrower, self.epoch, reason))

    def _replan_soon(self) -> list[Effect]:
        """Joins and leaves come in crowds: a short wait makes one plan of them."""
        if self._replan_timer:
            return []
        self._replan_timer = True
        return [SetTimer("replan", self.options.replan_ms)]

    def _tick(self, now_ms: int) -> list[Effect]:
        # Locks first: of a member whose lock is over, and that is silent too, the message is blamed once.
        effects = self.lending.expire(now_ms)
        for view in list(self.borrowers.values()):
            is_late = self.lending.is_late(view, now_ms)
            if is_late or now_ms - view.heard_ms >= self.options.borrower_ms:
                # Blamed while its leases are still there to say what it was at.
                self.lending.blame(view)
                if is_late:
                    self.lending.was_late(view)
                effects += self._expel(view, "REVOKE_DEADLINE" if is_late else "SILENT")
        effects += self.lending.remind(now_ms)
        if not self.borrowers:
            if self._idle_since_ms is None:
                self._idle_since_ms = now_ms
            elif now_ms - self._idle_since_ms >= self.options.idle_ms:
                return effects + self._end("IDLE")
        return effects + self.lending.replan(now_ms)

    def _look_later(self) -> list[Effect]:
        load_ms = self.options.load_ms if self.lending.shares_loads else 0
        return [SetTimer("load", load_ms)] if load_ms else []

    # --- what operators ask for -------------------------------------------------------------------

    def _kick(self, member: str) -> list[Effect]:
        effects: list[Effect] = []
        for view in list(self.borrowers.values()):
            # By either name: operators see members, and one member may have two Borrowers while it
            # resubscribes.
            if member in (view.member, view.id):
                self.lending.blame(view)
                effects += self._expel(view, "KICKED")
        return effects

    def _end(self, reason: str) -> list[Effect]:
        # Everybody first: what their leases have reported is in the progress, and the last commit has it.
        effects: list[Effect] = []
        for view in list(self.borrowers.values()):
            effects += self._expel(view, reason)
        # Who is to lead next waits for this one.
        self.lending.commits.hurry()
        self._end_reason = reason
        self.move(LeaderState.ENDING)
        return effects

    # --- storing ----------------------------------------------------------------------------------

    def _commit(self) -> list[Effect]:
        commits = self.lending.commits
        # What was deleted or moved has nothing of ours to keep; the catalog would refuse it.
        is_kept = self._end_reason not in ("DELETED", "SOUGHT")
        commit = commits.next(self.shards) if is_kept else None
        if commit is not None:
            return [commit]
        # Only now is everything stored: a Leader that stopped before would make its members' work be done
        # again.
        if self.state is LeaderState.ENDING and not commits.is_busy:
            return self._stop(self._end_reason)
        return []

    def _stop(self, reason: str) -> list[Effect]:
        self.move(LeaderState.STOPPED)
        return [Stopped(reason)]

    # --- for those who look -----------------------------------------------------------------------

    def lags(self) -> list[Lag]:
        return self.lending.sharing.lags()

    def invariants(self) -> None:
        for gone in (self._departed, self._strangers):
            both = [borrower for borrower in gone if borrower in self.borrowers]
            assert not both, f"L1: {both} are here and gone"
        if self.state is LeaderState.ENDING:
            assert not self.borrowers, f"L2: it ends, and {list(self.borrowers)} are here"
            assert self._end_reason, "L2: it ends, and nobody knows why"
        if self.state is LeaderState.LEADING:
            assert not self._end_reason, f"L2: it leads, and ends because of {self._end_reason}"
        assert not (self.borrowers and self._idle_since_ms is not None), "L3: it is not alone"
        assert len(self.borrowers) <= BORROWERS_MAX, f"L4: {len(self.borrowers)} members"
        assert len(self._departed) <= BORROWERS_DEPARTED_MAX, f"L4: {len(self._departed)} departed"
        self.lending.check()
