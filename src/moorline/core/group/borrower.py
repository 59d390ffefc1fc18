"""Room: core/group. The Borrower: one shared subscription of one session, at the session's side.

It finds the group's Leader, holds the leases that the Leader grants, and reports how far the session
is with them. It never goes back: one that finds something inconsistent ends and asks to be made anew, with
a new id.
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
from moorline.core.group.borrower_event import (
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
from moorline.core.group.message import (
    BorrowerMessage,
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
    UpdateProgress,
    lease_item,
    report_item,
)
from moorline.core.machine import Machine
from moorline.core.ranges import Range
from moorline.core.sets.digest import Digest
from moorline.core.stream import Gap, Stream
from moorline.limits import DISCONNECT_LOSSES_MAX, LEASES_REMEMBERED_MAX

__all__ = [
    "LEADER",
    "Borrower",
    "BorrowerState",
    "BorrowerTimes",
    "Destroyed",
    "Disconnected",
    "Held",
    "Install",
    "LeaseState",
    "Recreate",
    "Remove",
    "Retire",
    "StreamProgress",
    "Subscribed",
    "Unsubscribed",
]

LEADER = "leader"
"""The peer that a Borrower speaks to; until it knows the Leader, that is its node's registry."""


class BorrowerState(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNSUBSCRIBING = "unsubscribing"
    DESTROYED = "destroyed"


class LeaseState(Enum):
    """Of a stream at the Borrower; [absent] -> granted -> revoking -> [absent]."""

    GRANTED = "granted"
    REVOKING = "revoking"


class Held:
    """A lease as the Borrower sees it."""

    __slots__ = (
        "cursor",
        "delivered",
        "final",
        "is_over",
        "lost",
        "number",
        "returned",
        "state",
        "stream",
        "telling",
    )

    def __init__(self, stream: Stream, cursor: Cursor) -> None:
        self.stream = stream
        self.cursor = cursor
        self.delivered = cursor.offset
        self.returned: tuple[Range, ...] = ()
        self.lost: tuple[Gap, ...] = ()
        self.telling = False
        """The client is just being told of a loss."""
        self.is_over = False
        """The Leader has said so, and only the client is waited for."""
        self.state = LeaseState.GRANTED
        self.final = False
        self.number = 0
        """That of its newest report."""


class Borrower(Machine[BorrowerState]):
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
        self.leases: dict[int, Held] = {}
        self._member = member
        self._window = window
        self._times = times
        self._number = 0
        # The first ping that has no answer yet; the newest, and the digest of our reports at that time.
        self._unanswered = 0
        self._pinged = 0
        self._pinged_digest = b""
        # Leases whose last report may not have come to the Leader.
        self._unsure: dict[int, None] = {}
        # Leases that are over, and what was lost of each: a grant of one that comes late must not begin it
        # again. Those that it has no room for are over up to a number.
        self._over: dict[int, tuple[Gap, ...]] = {}
        self._over_upto = 0

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
        if isinstance(message, Invalidate):
            if message.epoch < self.epoch:
                return []  # from a Leader that was replaced
            return self._over_with(f"invalidated: {message.reason}")
        if message.epoch < self.epoch:
            return []
        if self.state is BorrowerState.CONNECTING:
            # Only the response says where the Leader is. What overtook it is said again.
            return self._connect(message) if isinstance(message, LeaderConnectResponse) else []
        if message.epoch > self.epoch:
            return self._leader_gone(f"the group has another Leader, of epoch {message.epoch}")
        match message:
            case LeaderConnectResponse():
                return []
            case PingResponse():
                return self._ping_answered(message)
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
        self.epoch, self.leader = response.epoch, response.leader
        return [CancelTimer("find leader"), SetTimer("ping", self._times.ping_ms)]

    def _ping_answered(self, response: PingResponse) -> list[Effect]:
        if not 0 < self._unanswered <= response.number:
            return []  # late, or repeated
        self._unanswered = 0
        effects: list[Effect] = [CancelTimer("ping timeout")]
        if response.number == self._pinged:
            effects += self._compared(response.digest)
        return effects

    def _compared(self, digest: bytes) -> list[Effect]:
        """Reports that the Leader has are done with; where one may be lost, it is made again."""
        older = [lease for lease in self._unsure if self.leases[lease].number < self._pinged]
        if digest == self._pinged_digest:
            for lease in older:
                del self._unsure[lease]
            return []
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []  # its last word says everything
        return [self._report(lease) for lease in older]

    def _granted(self, grant: Grant) -> list[Effect]:
        if grant.lease in self.leases:
            return [self._report(grant.lease)]
        if grant.lease in self._over or grant.lease <= self._over_upto:
            return [self._never(grant.lease)]
        self.leases[grant.lease] = Held(grant.stream, grant.cursor)
        install = Install(
            self.id, grant.lease, grant.stream, grant.cursor, grant.deliveries_max, grant.ranges
        )
        return [install, self._report(grant.lease)]

    def _revoke(self, lease: int) -> list[Effect]:
        held = self.leases.get(lease)
        if held is None:
            # The grant is lost or behind this: it never began here, and never will.
            self._forget(lease, ())
            return [self._never(lease)]
        if held.state is LeaseState.REVOKING:
            return [self._report(lease)]
        held.state = LeaseState.REVOKING
        return [Retire(self.id, lease)]

    def _revoked(self, lease: int) -> list[Effect]:
        effects: list[Effect] = []
        held = self.leases.get(lease)
        if held is not None and held.telling:
            # What the client hears of now would be told once more, to whoever has the stream next.
            held.is_over = True
            return []
        if held is not None:
            del self.leases[lease]
            self._unsure.pop(lease, None)
            effects.append(Remove(self.id, lease))
        self._forget(lease, held.lost if held is not None else ())
        self._number += 1
        # Each time: of two that were said the Leader may hear the second one first.
        lost = self._over.get(lease, ())
        finished = RevokeFinished(self.id, self.epoch, self._number, lease, lost)
        return [*effects, Send(LEADER, finished)]

    # --- the session speaks -----------------------------------------------------------------------

    def _progress(self, progress: StreamProgress) -> list[Effect]:
        held = self.leases.get(progress.lease)
        if held is None:
            return []
        held.cursor, held.delivered = progress.cursor, progress.delivered
        held.returned, held.lost = progress.returned, progress.lost
        held.telling = progress.telling
        held.final = progress.final and held.state is LeaseState.REVOKING
        if self.state is BorrowerState.UNSUBSCRIBING:
            return self._leave() if self._is_drained() else []
        if held.is_over and not held.telling:
            return self._revoked(progress.lease)
        return [self._report(progress.lease)]

    def _unsubscribe(self) -> list[Effect]:
        if self.state is BorrowerState.CONNECTING:
            return self._leave()
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []
        self.move(BorrowerState.UNSUBSCRIBING)
        retired: list[Effect] = []
        for lease, held in self.leases.items():
            if held.state is LeaseState.GRANTED:
                held.state = LeaseState.REVOKING
                retired.append(Retire(self.id, lease))
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
                # Nor its place, which has passed what is lost: the reports have said both.
                continue
            room -= len(held.lost)
            cursors.append((lease, held.cursor))
            if held.lost:
                lost.append((lease, held.lost))
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
        self._number += 1
        ping = Ping(self.id, self.epoch, self._number, bytes(self.digest()))
        effects: list[Effect] = [Send(LEADER, ping), SetTimer("ping", self._times.ping_ms)]
        self._pinged = self._number
        items = (report_item(lease, held.number) for lease, held in self.leases.items())
        self._pinged_digest = bytes(Digest.of(items))
        if not self._unanswered:
            self._unanswered = self._number
            effects.append(SetTimer("ping timeout", self._times.ping_timeout_ms))
        return effects

    def digest(self) -> Digest:
        """Of the leases held: the Leader compares it with its own."""
        return Digest.of(lease_item(lease, held.stream) for lease, held in self.leases.items())

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
            return [*self._removals(), *self._end(Destroyed(self.id))]
        return [*self._removals(), *self._end(Recreate(self.id, reason))]

    def _removals(self) -> list[Effect]:
        removals: list[Effect] = [Remove(self.id, lease) for lease in self.leases]
        self.leases.clear()
        self._unsure.clear()
        return removals

    def _end(self, last: Effect) -> list[Effect]:
        self.move(BorrowerState.DESTROYED)
        timers = ("find leader", "ping", "ping timeout", "unsubscribe")
        return [*(CancelTimer(name) for name in timers), last]

    # --- messages ---------------------------------------------------------------------------------

    def _report(self, lease: int) -> Send:
        held = self.leases[lease]
        self._number += 1
        held.number = self._number
        self._unsure[lease] = None
        message: BorrowerMessage = UpdateProgress(
            self.id,
            self.epoch,
            self._number,
            lease,
            held.cursor,
            held.delivered,
            held.final,
            held.returned,
            held.lost,
        )
        return Send(LEADER, message)

    def _never(self, lease: int) -> Send:
        """We have nothing of that lease, and never begin it."""
        self._number += 1
        return Send(LEADER, UpdateProgress(self.id, self.epoch, self._number, lease, None, 0, True))

    def _forget(self, lease: int, lost: tuple[Gap, ...]) -> None:
        self._over.setdefault(lease, lost)
        if len(self._over) > LEASES_REMEMBERED_MAX:
            oldest = next(iter(self._over))
            self._over_upto = max(self._over_upto, oldest)
            del self._over[oldest]
