"""Room: core/group. What a Leader lends, and to whom: whole streams, each to one member at a time
(`$shared`).

    GRANTING ──► GRANTED ──► REVOKING ──► REVOKED ──► dropped
    said again   reports     said again   said again
                 move the
                 progress

The Leader (core/group/leader.py) knows who is there and for how long it may speak; this knows the leases,
and what reports do to the group's progress. Locks on single messages are the same with another plan:
core/group/queue_leader.py.

Invariant, looked at by `check`:

    G2  a stream has one lease at most, so that no two members read it (I1 of docs/design/groups.md)

with those of who holds what (G1, G3), of its leases (E1 to E3), its shards (W1, W2) and its commits (C1, C2).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Send
from moorline.core.group.commit import Commits
from moorline.core.group.events import GapFound, LeaderOptions
from moorline.core.group.exchange import exchanges
from moorline.core.group.loads import Loads
from moorline.core.group.message import Disconnect, UpdateProgress
from moorline.core.group.sharing import Sharing
from moorline.core.group.stream_lease import Lease, Status
from moorline.core.group.views import BorrowerView, ShardView
from moorline.core.ranges import Range
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.limits import FEED_LOSSES_MAX, GROUP_LOAD_RESTS


class StreamLending:
    """The leases of one group under one epoch."""

    shares_loads: ClassVar[bool] = True
    """Whether it matters what a stream carries; where members share its messages, it does not."""

    def __init__(
        self, epoch: int, cursors: Iterable[tuple[Shard, Cursor]], options: LeaderOptions
    ) -> None:
        self.epoch = epoch
        self.options = options
        self.sharing = Sharing(cursors)
        self.shards = self.sharing.shards
        self.borrowers = self.sharing.borrowers
        self.leases = self.sharing.leases
        self.commits = Commits(options)
        self.loads = Loads()
        self.exchanges_streams = True

    # --- members come and go ----------------------------------------------------------------------

    def joined(self, view: BorrowerView) -> None:
        """A member has asked for its Leader, for the first time or again; the next plan counts it in."""

    def left(self, view: BorrowerView) -> None:
        # The leases go first: to drop one looks its member up.
        for lease in list(view.leases.values()):
            self.drop(lease)
        del self.borrowers[view.id]

    def blame(self, view: BorrowerView) -> None:
        """A member is gone without a word: what it was at, stream by stream, counts as failed.

        Only the oldest that is out of each. If all counted, one poison message would take its whole window to
        the dead letters with it.
        """
        for lease in view.leases.values():
            shard_view = self.shards[lease.stream.shard]
            open_ranges = shard_view.progress.open_ranges(shard_view.progress.low, lease.delivered)
            if open_ranges:
                shard_view.progress.fail(open_ranges[0][0])
                self.commits.note(shard_view.shard)

    def is_late(self, view: BorrowerView, now_ms: int) -> bool:
        """Whether a member keeps something that it was asked to give back."""
        return any(
            lease.status is Status.REVOKING and now_ms - lease.since_ms >= self.options.revoke_ms
            for lease in view.leases.values()
        )

    def was_late(self, view: BorrowerView) -> None:
        """It is sent away. Where it was asked for an exchange, that cost far more than it could gain, and
        members that take their time over what they have would be asked again: so nobody is, from now on."""
        for lease in view.leases.values():
            if lease.status is Status.REVOKING and self.shards[lease.stream.shard].meant_for:
                self.exchanges_streams = False

    # --- what members report ----------------------------------------------------------------------

    def reported(self, lease: Lease, update: UpdateProgress, now_ms: int) -> list[Effect]:
        """Takes a report in. It may be old, or a repetition: all of it only grows, or is a maximum."""
        gaps: list[Effect] = []
        if update.cursor is not None:
            # First what is lost: the cursor has passed it, as if it had been acknowledged. The other way
            # round nothing would be open any more, and the loss would not be counted.
            if update.lost:
                gaps = self.lose(lease, update.lost)
            lease.delivered = max(lease.delivered, update.delivered)
            lease.reported = max(lease.reported, update.number)
            is_new = self.merge(lease, update.cursor)
            came_back = bool(update.returned) and self.take_returned(lease, update.returned)
            if came_back or is_new or gaps:
                lease.progress_ms = now_ms
        if update.final and lease.status is not Status.REVOKED:
            # Also of one that is still being granted: a Borrower that has forgotten it never begins it.
            lease.move(Status.REVOKING, now_ms)
            lease.move(Status.REVOKED, now_ms)
            return [*gaps, self.say(lease, now_ms)]
        if lease.status is Status.GRANTING:
            # Only from here: a report that comes while it is revoked never makes it GRANTED again, or a
            # stream that two members wait for would stay with the first.
            lease.move(Status.GRANTED, now_ms)
            lease.progress_ms = now_ms
        finished = self.finish_if_done(lease, now_ms)
        if lease.status is Status.GRANTED and len(update.lost) >= FEED_LOSSES_MAX:
            # It reads no more: its reports would outgrow a frame. The rest follows under a new lease.
            finished = [self.take_back(lease, now_ms)]
        return gaps + finished

    def returned(self, lease: Lease, lost: Iterable[Gap], now_ms: int) -> list[Effect]:
        """`RevokeFinished`: the member has nothing of it any more, so the stream may be another's."""
        gaps = self.lose(lease, lost)
        self.drop(lease)
        return gaps + self.replan(now_ms)

    def take_goodbye(self, view: BorrowerView, goodbye: Disconnect) -> list[Effect]:
        """The last word of a member; its leases are dropped by `left`."""
        # Under another Leader the numbers were those of other leases: to merge them would pass messages of a
        # stream that nobody has read (I5).
        held = view.leases if goodbye.epoch == self.epoch else {}
        gaps = [
            gap
            for number, several in goodbye.lost
            if number in held
            for gap in self.lose(held[number], several)
        ]
        # Behind the losses, as in a report.
        for number, cursor in goodbye.cursors:
            if number in held:
                self.merge(held[number], cursor)
        return gaps

    def lose(self, lease: Lease, lost: Iterable[Gap]) -> list[Effect]:
        """A member told its client that these are gone; what others told before is not counted again."""
        view = self.shards[lease.stream.shard]
        found = view.lose(lost)
        if found:
            self.commits.note(view.shard)
        return [GapFound(view.shard, *gap) for gap in found]

    def merge(self, lease: Lease, cursor: Cursor) -> bool:
        """Whether there was anything new in it."""
        view = self.shards[lease.stream.shard]
        is_new = view.progress.merge(cursor)
        if is_new:
            self.commits.note(view.shard)
        return is_new

    def take_returned(self, lease: Lease, returned: tuple[Range, ...]) -> bool:  # noqa: ARG002
        """A member gave messages back; only where members share the messages of a stream."""
        return False

    def finish_if_done(self, lease: Lease, now_ms: int) -> list[Effect]:
        """A stream that is sealed and read to its end goes back by itself."""
        if lease.status is Status.REVOKED or not self.is_done(lease):
            return []
        # Both moves at once: there is nothing left that its member could be asked to finish. It is not
        # dropped yet, because the member holds it until it has heard so.
        lease.move(Status.REVOKING, now_ms)
        lease.move(Status.REVOKED, now_ms)
        return [self.say(lease, now_ms)]

    def is_done(self, lease: Lease) -> bool:
        view = self.shards[lease.stream.shard]
        extent = view.extent_of(lease.stream)
        if extent is None:
            # Retention took it. What the client has in hand may still be acknowledged, and of the rest it is
            # told; when all of that is known, the next one begins. Without any extents the node that has the
            # shard is away, which ends nothing.
            return bool(view.extents) and view.progress.low >= view.first
        return extent.sealed and view.progress.low >= extent.end

    # --- streams come and go ----------------------------------------------------------------------

    def seen(
        self, shard_extents: Iterable[tuple[Shard, tuple[Extent, ...], int]], now_ms: int
    ) -> list[Effect]:
        effects: list[Effect] = []
        for shard, extents, start in shard_extents:
            view = self.shards.get(shard)
            if view is None:
                view = self.shards[shard] = ShardView(shard, Cursor(start))
                # Stored before anything is read of it: the next Leader must not begin it somewhere else.
                self.commits.note(shard)
            view.extents = extents
            for lease in list(view.leases.values()):
                if lease.gone_ms is None and view.extent_of(lease.stream) is None:
                    # From now on its member has `revoke_ms` for what it has in hand.
                    lease.gone_ms = now_ms
                # A stream that was read to its end may have been sealed, or dropped, only now.
                effects += self.finish_if_done(lease, now_ms)
        return effects + self.replan_shards(now_ms)

    def replan_shards(self, now_ms: int) -> list[Effect]:
        """Streams have grown, which changes no plan, or there is one that nobody has."""
        is_new = any(not view.leases and view.current() for view in self.shards.values())
        return self.replan(now_ms) if is_new else []

    # --- who reads what ---------------------------------------------------------------------------

    def replan(self, now_ms: int) -> list[Effect]:
        """Brings the leases nearer to fair shares; of a quiet group that is nothing (I9)."""
        if not self.borrowers:
            return []
        plan = self.sharing.plan()
        effects: list[Effect] = []
        for shard, _ in plan.revokes:
            (lease,) = self.shards[shard].leases.values()
            effects.append(self.take_back(lease, now_ms))
        # Grants are of shards without a lease, never of those just revoked: a stream that is on its way
        # back is granted when it has come back, or two would read it (I2).
        for shard, borrower in plan.grants:
            extent = self.shards[shard].current()
            assert extent is not None
            effects.append(self.grant(extent.stream, borrower, now_ms))
        return effects

    def saw_ends(self, ends: Mapping[Shard, int], now_ms: int) -> list[Effect]:
        """So far the shards have come now: who carries far more than others exchanges a stream."""
        self.loads.saw(ends, now_ms)
        per_s = self.loads.per_s
        is_worth_it = self.exchanges_streams and sum(
            per_s.values()
        ) >= self.options.load_least * len(self.borrowers)
        # One thing after the other: while streams are under way it is not known yet who carries what.
        if not is_worth_it or not self.sharing.is_quiet():
            return []
        resting = {shard for shard, view in self.shards.items() if now_ms < view.rests_until_ms}
        effects: list[Effect] = []
        for giver, gives, taker, gets in exchanges(self.sharing.held(), per_s, resting):
            effects.append(self._hand_over(gives, taker, now_ms))
            if gets is not None:
                effects.append(self._hand_over(gets, giver, now_ms))
        return effects

    def _hand_over(self, shard: Shard, borrower: str, now_ms: int) -> Effect:
        view = self.shards[shard]
        view.meant_for = borrower
        view.rests_until_ms = now_ms + GROUP_LOAD_RESTS * self.options.load_ms
        (lease,) = view.leases.values()
        return self.take_back(lease, now_ms)

    def grant(
        self, stream: Stream, borrower: str, now_ms: int, ranges: tuple[Range, ...] | None = None
    ) -> Effect:
        return self.say(self.sharing.grant(stream, borrower, now_ms, ranges), now_ms)

    def take_back(self, lease: Lease, now_ms: int) -> Effect:
        lease.move(Status.REVOKING, now_ms)
        return self.say(lease, now_ms)

    def say(self, lease: Lease, now_ms: int) -> Effect:
        """What its member must hear of a lease now. `remind` says it again until it is answered."""
        lease.sent_ms = now_ms
        message = lease.message(self.epoch, self.cursor_for(lease), self.options.deliveries_max)
        assert message is not None
        return Send(lease.borrower, message)

    def cursor_for(self, lease: Lease) -> Cursor:
        """What the Borrower must know of the progress: all of it."""
        return self.shards[lease.stream.shard].progress.cursor()

    def drop(self, lease: Lease) -> None:
        self.sharing.drop(lease)

    # --- time passes ------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[Effect]:  # noqa: ARG002
        """Locks run out; a stream is its member's until it is wanted elsewhere."""
        return []

    def remind(self, now_ms: int) -> list[Effect]:
        """Says again what was not answered: nothing of it may hang on one message that is lost."""
        effects: list[Effect] = []
        for lease in list(self.leases.values()):
            if lease.status is not Status.GRANTED:
                if now_ms - lease.sent_ms >= self.options.resend_ms:
                    effects.append(self.say(lease, now_ms))
            elif self._is_overdue(lease, now_ms):
                effects.append(self.take_back(lease, now_ms))
        return effects

    def _is_overdue(self, lease: Lease, now_ms: int) -> bool:
        """The stream is gone, and its member holds the group up with what it has in hand of it."""
        is_gone = lease.ranges is None and lease.gone_ms is not None
        return is_gone and now_ms - (lease.gone_ms or 0) >= self.options.revoke_ms

    # --- what operators ask for -------------------------------------------------------------------

    def change(self, deliveries_max: int, now_ms: int) -> list[Effect]:
        """Another limit, for what is granted from now on."""
        self.options = msgspec.structs.replace(self.options, deliveries_max=deliveries_max)
        return self.regrant(now_ms)

    def regrant(self, now_ms: int) -> list[Effect]:
        """Those who have a stream were granted it with the old limit: it goes back, and is granted again."""
        return [
            self.take_back(lease, now_ms)
            for lease in list(self.leases.values())
            if lease.status in (Status.GRANTING, Status.GRANTED)
        ]

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants."""
        self.sharing.check()
        self.check_exclusive()
        for lease in self.leases.values():
            lease.check()
        for view in self.shards.values():
            view.check()
        self.commits.check(self.shards)

    def check_exclusive(self) -> None:
        for view in self.shards.values():
            assert len(view.leases) <= 1, f"G2: {view.shard} has leases {list(view.leases)}"
