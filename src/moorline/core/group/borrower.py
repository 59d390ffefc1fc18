"""Room: core/group. The Borrower: one shared subscription of one session, at the session's side.

It finds the group's Leader, holds the leases that the Leader grants (core/group/held_leases.py), and
reports how far the session is with them. It never goes back: one that finds something inconsistent ends and
asks to be made anew, with a new id. So whatever it knows is of one Leader and one epoch, and nothing of it
must ever be mended.

Invariants, looked at by `check`, with those of its leases (H1 to H5):

    B1  without a Leader it holds nothing; when it is over, neither
    B2  while it unsubscribes, all that it holds is on its way back
    B3  a lease that its Leader has ended is kept only while a client is just being told of a loss
    B4  the ping that is waited for was sent, and was not sent before the one that it is the first of

Design: docs/design/groups.md.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import (
    CancelTimer,
    Effect,
    Event,
    PeerLost,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from moorline.core.group.events import (
    BorrowerTimes,
    Destroyed,
    Disconnected,
    Install,
    Recreate,
    Remove,
    Retire,
    StreamProgress,
    Subscribed,
    Unsubscribed,
)
from moorline.core.group.held_leases import HeldLeases, LeaseState
from moorline.core.group.message import (
    Disconnect,
    FromLeader,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Revoke,
    Revoked,
    RevokeFinished,
)
from moorline.core.machine import Machine
from moorline.core.sets.digest import Digest
from moorline.core.stream import Gap
from moorline.limits import DISCONNECT_LOSSES_MAX

LEADER = "leader"
"""The peer that a Borrower speaks to; until it knows the Leader, that is its node's registry."""


class BorrowerState(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNSUBSCRIBING = "unsubscribing"
    DESTROYED = "destroyed"


class Borrower(Machine[BorrowerState]):
    # The statuses of the specification, which has no cycle in them either: what could be mended by going
    # back is mended by another Borrower, and no state has to be thought of together with what was before it.
    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        BorrowerState.CONNECTING: frozenset({BorrowerState.CONNECTED, BorrowerState.DESTROYED}),
        BorrowerState.CONNECTED: frozenset({BorrowerState.UNSUBSCRIBING, BorrowerState.DESTROYED}),
        BorrowerState.UNSUBSCRIBING: frozenset({BorrowerState.DESTROYED}),
        BorrowerState.DESTROYED: frozenset(),
    }

    def __init__(self, borrower: str, member: str, window: int, times: BorrowerTimes) -> None:
        super().__init__(f"borrower {borrower}", BorrowerState.CONNECTING)
        self.id = borrower
        self.leader = ""
        self.epoch = 0
        self._leases = HeldLeases(borrower)
        self.leases = self._leases.held
        self._member = member
        self._window = window
        self._times = times
        # The first ping that has no answer yet; the newest, and the digest of our reports at that time.
        self._unanswered = 0
        self._pinged = 0
        self._pinged_digest = b""

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002  (its timers are effects)
        if self.state is BorrowerState.DESTROYED:
            return []
        match event:
            case Subscribed():
                return self._find_leader()
            case Received(_, FromLeader() as message):
                return self._from_leader(message)
            case StreamProgress():
                return self._progress(event)
            case Unsubscribed():
                return self._unsubscribe()
            case Disconnected():
                return self._leave()
            case TimerFired(name):
                return self._timer(name)
            case PeerLost():
                return self._leader_gone("the link to the Leader is gone")
            case _:
                raise AssertionError(f"a Borrower knows no {event}")

    # --- the Leader speaks ------------------------------------------------------------------------

    def _from_leader(self, message: FromLeader) -> list[Effect]:
        if message.epoch < self.epoch:
            return []  # from a Leader that was replaced
        if isinstance(message, Invalidate):
            # In every state, also before a Leader is known: a group that is full or deleted says so to
            # whoever asks.
            return self._over_with(f"invalidated: {message.reason}")
        if self.state is BorrowerState.CONNECTING:
            # Only the response says where the Leader is. What overtook it is said again.
            return self._connect(message) if isinstance(message, LeaderConnectResponse) else []
        if message.epoch > self.epoch:
            # Not taken over: the new Leader knows nothing of what we hold, and has its own numbers for
            # leases.
            return self._leader_gone(f"the group has another Leader, of epoch {message.epoch}")
        match message:
            case LeaderConnectResponse():
                return []
            case PingResponse():
                return self._ping_answered(message)
            # A stream that is granted now would only have to be given back, and its client reads no more.
            # The goodbye ends all leases, those that we never heard of too.
            case _ if self.state is BorrowerState.UNSUBSCRIBING:
                return []
            case Grant():
                return self._granted(message)
            case Revoke(lease=lease):
                return self._revoke(lease)
            case Revoked(lease=lease):
                return self._revoked(lease)
            case _:
                raise AssertionError(f"a Leader says no {message}")

    def _connect(self, response: LeaderConnectResponse) -> list[Effect]:
        self.move(BorrowerState.CONNECTED)
        # From now on older words are not heard, and those of another Leader end it.
        self.epoch, self.leader = response.epoch, response.leader
        return [CancelTimer("find leader"), SetTimer("ping", self._times.ping_ms)]

    def _ping_answered(self, response: PingResponse) -> list[Effect]:
        if not 0 < self._unanswered <= response.number:
            return []  # late, or repeated
        self._unanswered = 0
        effects: list[Effect] = [CancelTimer("ping timeout")]
        # Only with the newest: of an older ping we have not kept what our reports were.
        if response.number == self._pinged:
            effects += self._compared(response.digest)
        return effects

    def _compared(self, digest: bytes) -> list[Effect]:
        """Reports that the Leader has are done with; where one may be lost, it is made again."""
        # What was reported behind the ping is not in its answer, and says nothing by its absence.
        older = self._leases.older_than(self._pinged)
        if digest == self._pinged_digest:
            self._leases.heard(older)
            return []
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []  # its last word says everything
        return [self._report(lease) for lease in older]

    def _granted(self, grant: Grant) -> list[Effect]:
        if grant.lease in self.leases:
            # Said again: our report is lost, or on its way. It is not begun again, or its client would get
            # twice what is out.
            return [self._report(grant.lease)]
        if self._leases.is_over(grant.lease):
            return [self._never(grant.lease)]
        self._leases.hold(grant)
        install = Install(
            self.id, grant.lease, grant.stream, grant.cursor, grant.deliveries_max, grant.ranges
        )
        # The report is the confirmation, and says where we begin.
        return [install, self._report(grant.lease)]

    def _revoke(self, lease: int) -> list[Effect]:
        held = self.leases.get(lease)
        if held is None:
            # The grant is lost or behind this: it never began here, and never will.
            self._leases.forget(lease)
            return [self._never(lease)]
        if held.state is LeaseState.REVOKING:
            # Asked again: the last report is lost, or there is something out yet, and it says so.
            return [self._report(lease)]
        # Before the session hears of it: what it reports from here on may be final.
        held.state = LeaseState.REVOKING
        return [Retire(self.id, lease)]

    def _revoked(self, lease: int) -> list[Effect]:
        held = self.leases.get(lease)
        if held is not None and held.telling:
            # What the client hears of now would be told once more, to whoever has the stream next.
            held.is_over = True
            return []
        was_held, lost = self._leases.give_up(lease)
        removed: list[Effect] = [Remove(self.id, lease)] if was_held else []
        # Each time, with the losses: of two that were said the Leader may hear the second one first.
        number = self._leases.next_number()
        finished = RevokeFinished(self.id, self.epoch, number, lease, lost)
        # Removed before it is said: when the Leader hears this, another may have the stream.
        return [*removed, Send(LEADER, finished)]

    # --- the session speaks -----------------------------------------------------------------------

    def _progress(self, progress: StreamProgress) -> list[Effect]:
        held = self.leases.get(progress.lease)
        if held is None:
            return []  # of a lease that is over: the session has not heard of it yet
        # Taken in whatever happens next: the goodbye says what was taken in last.
        held.take_in(progress)
        if self.state is BorrowerState.UNSUBSCRIBING:
            # No reports any more: the goodbye has all of them, when the last is in.
            return self._leave() if self._is_drained() else []
        if held.is_over and not held.telling:
            return self._revoked(progress.lease)
        return [self._report(progress.lease)]

    def _unsubscribe(self) -> list[Effect]:
        if self.state is BorrowerState.CONNECTING:
            # A Leader may have heard that we want it: it is told that we do not, though we do not know it.
            return self._leave()
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []
        self.move(BorrowerState.UNSUBSCRIBING)
        retired: list[Effect] = []
        for lease, held in self.leases.items():
            if held.state is LeaseState.GRANTED:
                held.state = LeaseState.REVOKING
                retired.append(Retire(self.id, lease))
        # A feed that has nothing out is final only when it has said so, so with leases this is not now.
        if self._is_drained():
            return self._leave()
        return [*retired, SetTimer("unsubscribe", self._times.unsubscribe_ms)]

    def _is_drained(self) -> bool:
        return all(held.final for held in self.leases.values())

    def _leave(self) -> list[Effect]:
        cursors: list[tuple[int, Cursor]] = []
        lost: list[tuple[int, tuple[Gap, ...]]] = []
        room = DISCONNECT_LOSSES_MAX
        for lease, held in self.leases.items():
            if len(held.lost) > room:
                # Nor its cursor, which has passed what is lost: the reports have said both.
                continue
            room -= len(held.lost)
            cursors.append((lease, held.cursor))
            if held.lost:
                lost.append((lease, held.lost))
        # Said first, while the leases are there to be told of; the session forgets them in the same step.
        return [
            Send(LEADER, Disconnect(self.id, self.epoch, tuple(cursors), tuple(lost))),
            *self._removals(),
            *self._end(Destroyed(self.id)),
        ]

    # --- time and mishaps -------------------------------------------------------------------------

    def _timer(self, name: str) -> list[Effect]:
        match name:
            case "find leader" if self.state is BorrowerState.CONNECTING:
                return self._find_leader()
            case "ping" if self.state is not BorrowerState.CONNECTING:
                return self._ping()
            case "ping timeout":
                return self._leader_gone("no answer to a ping")
            case "unsubscribe":
                return self._leave()
            case _:
                return []

    def _ping(self) -> list[Effect]:
        """Also while one is unanswered: a single one that is lost does not end everything."""
        number = self._pinged = self._leases.next_number()
        ping = Ping(self.id, self.epoch, number, bytes(self.digest()))
        effects: list[Effect] = [Send(LEADER, ping), SetTimer("ping", self._times.ping_ms)]
        # As of now: reports that follow must not be compared with what the Leader knew before them.
        self._pinged_digest = self._leases.reports_digest()
        if not self._unanswered:
            # The time runs from the first that is unanswered: each further one would put the end off.
            self._unanswered = number
            effects.append(SetTimer("ping timeout", self._times.ping_timeout_ms))
        return effects

    def digest(self) -> Digest:
        """Of the leases held: the Leader compares it with its own."""
        return self._leases.digest()

    def _find_leader(self) -> list[Effect]:
        return [
            Send(LEADER, LeaderWanted(self.id, self._member, self._window)),
            SetTimer("find leader", self._times.find_leader_ms),
        ]

    def _leader_gone(self, reason: str) -> list[Effect]:
        if self.state is BorrowerState.CONNECTING:
            return []  # the timer asks again
        return self._over_with(reason)

    def _over_with(self, reason: str) -> list[Effect]:
        if self.state is BorrowerState.UNSUBSCRIBING:
            # Nobody wants another one. What it had not reported comes again elsewhere.
            return [*self._removals(), *self._end(Destroyed(self.id))]
        return [*self._removals(), *self._end(Recreate(self.id, reason))]

    def _removals(self) -> list[Effect]:
        return [Remove(self.id, lease) for lease in self._leases.clear()]

    def _end(self, last: Effect) -> list[Effect]:
        self.move(BorrowerState.DESTROYED)
        # All of them, set or not: one that fired for a Borrower that is over would be for nobody.
        timers = ("find leader", "ping", "ping timeout", "unsubscribe")
        return [*(CancelTimer(name) for name in timers), last]

    # --- messages ---------------------------------------------------------------------------------

    def _report(self, lease: int) -> Send:
        return Send(LEADER, self._leases.report(lease, self.epoch))

    def _never(self, lease: int) -> Send:
        return Send(LEADER, self._leases.report_never(lease, self.epoch))

    # --- what always holds ------------------------------------------------------------------------

    def invariants(self) -> None:
        is_known = self.state in (BorrowerState.CONNECTED, BorrowerState.UNSUBSCRIBING)
        assert is_known or not self.leases, f"B1: {self.state}, and it holds {list(self.leases)}"
        if self.state is BorrowerState.CONNECTING:
            assert not self.leader, f"B1: {self.leader} is known before it has answered"
        for lease, held in self.leases.items():
            if self.state is BorrowerState.UNSUBSCRIBING:
                assert held.state is LeaseState.REVOKING, f"B2: lease {lease} is {held.state}"
            else:
                assert held.telling or not held.is_over, f"B3: lease {lease} is over"
        assert self._unanswered <= self._pinged <= self._leases.number, (
            f"B4: {self._unanswered} is waited for, {self._pinged} was the last"
        )
        self._leases.check()
