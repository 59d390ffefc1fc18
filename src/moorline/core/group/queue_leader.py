"""Room: core/group. The Leader of a `$queue` group: members share the messages of a stream, not the streams.

A lease is some ranges of a stream: a lock on those messages. A member has as many locked messages as
its window says; what it rejects or does not finish in time goes to another. Between members there is no
order.

Invariants, looked at by `check`, with G1 of core/group/lending.py:

    Q1  a message has one lock at most, and what is locked cannot be handed out (I1)
    Q2  a member's `locked` counts exactly what its locks have open; what is gone counts nothing
    Q3  `_roomy` are exactly the members whose window has room: one that is missing would starve
    Q4  what was handed out is done, locked or back: nothing is lost on the way between members (I3)
    Q5  a shard where messages came back is in `_refilled`: forgotten there, they would never be delivered
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import ClassVar

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.group.events import LeaderOptions
from moorline.core.group.leader import Leader
from moorline.core.group.lending import StreamLending
from moorline.core.group.pool import Pool
from moorline.core.group.stream_lease import Lease, Status
from moorline.core.group.views import BorrowerView
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import Shard
from moorline.limits import QUEUE_SLICE_MAX


class QueueLending(StreamLending):
    """Lends messages: many leases of a stream at once, each a lock on some ranges of it."""

    shares_loads: ClassVar[bool] = False

    def __init__(
        self, epoch: int, cursors: Iterable[tuple[Shard, Cursor]], options: LeaderOptions
    ) -> None:
        super().__init__(epoch, cursors, options)
        self._pools: dict[Shard, Pool] = {}
        # Shards that have messages nobody had yet, the one whose turn it is first; and those where
        # messages came back. Both are dicts for their order, so that two runs of a seed are the same.
        self._waiting: dict[Shard, None] = {}
        self._refilled: dict[Shard, None] = {}
        # Shards where something is gone that is not done: told to nobody yet, or in somebody's hand.
        self._gone: dict[Shard, None] = {}
        # Members that can take something, the one that has waited longest for something first. Under load
        # it is those that have just finished something. Kept, and not found anew: a plan follows every
        # report, and must not look at all members each time.
        self._roomy: dict[str, None] = {}

    def _pool(self, shard: Shard) -> Pool:
        pool = self._pools.get(shard)
        if pool is None:
            pool = self._pools[shard] = Pool(self.shards[shard])
        return pool

    # --- handing out ------------------------------------------------------------------------------

    def replan(self, now_ms: int) -> list[Effect]:
        if not self.borrowers or not (self._waiting or self._refilled):
            return []
        # What is gone goes first, and needs no room: `fresh` must not meet it.
        effects = self._hand_gone(now_ms) if self._gone else []
        if not self._roomy:
            return effects
        rooms = _Rooms(self.borrowers[borrower] for borrower in self._roomy)
        # What came back goes before what is new: it is older, and holds the stored cursor down.
        for shard in list(self._refilled):
            effects += self._hand_back(self._pool(shard), rooms, now_ms)
            self._note(shard)
        # A slice of each shard in turn: one that is far behind does not hold up the others.
        members, shares = len(rooms), dict[Shard, int]()
        while rooms and self._waiting:
            shard = next(iter(self._waiting))
            pool = self._pool(shard)
            # Shared out evenly, so that the first member does not get all of a small crowd. Reckoned once a
            # plan: reckoned anew for each slice, it would fall to single messages.
            share = shares.setdefault(shard, -(-(pool.view.end - pool.next) // members))
            # Out, and in again at the end by `_note`: this is what makes them take turns. One that had
            # nothing stays out, so the loop ends.
            del self._waiting[shard]
            granted = self._hand_slice(pool, min(share, QUEUE_SLICE_MAX), rooms, now_ms)
            if granted is not None:
                effects.append(granted)
                self._note(shard)
        return effects

    def _hand_gone(self, now_ms: int) -> list[Effect]:
        """What retention took before anybody had it: a member tells its client, with or without room."""
        effects: list[Effect] = []
        for shard in list(self._gone):
            pool = self._pool(shard)
            if pool.view.progress.low >= pool.view.first:
                # Else it stays: of what is in somebody's hand now some may come back, and is gone then.
                del self._gone[shard]
            gone = pool.take_gone()
            # A report says all losses of its lease: so many ranges, and not more, are one.
            for start in range(0, len(gone), QUEUE_SLICE_MAX):
                view = min(self.borrowers.values(), key=lambda one: one.locked)
                extent, some = pool.view.extents[0], gone[start : start + QUEUE_SLICE_MAX]
                lease = self.sharing.grant(extent.stream, view.id, now_ms, some)
                lease.is_gone = True
                effects.append(self.say(lease, now_ms))
                self._note(shard)
        return effects

    def _hand_back(self, pool: Pool, rooms: "_Rooms", now_ms: int) -> list[Effect]:
        # First, or what a member finished behind its lock would be delivered once more.
        pool.forget_done()
        effects: list[Effect] = []
        for first, upto, refused_by in pool.pieces():
            while first < upto:
                # Where there is nobody else, whoever refused it gets it again: better than never.
                refuser = refused_by if len(self.borrowers) > 1 else ""
                view = rooms.next(refuser)
                if view is None:
                    break
                stop = min(upto, first + view.window - view.locked)
                pool.take_back(first, stop)
                effects.append(self._lock(pool, view, first, stop, now_ms))
                rooms.again(view)
                first = stop
        return effects

    def _hand_slice(self, pool: Pool, share: int, rooms: "_Rooms", now_ms: int) -> Effect | None:
        found, view = pool.fresh(), rooms.next()
        if view is None:
            return None
        granted = None
        if found is not None:
            first, upto = found
            upto = min(upto, first + share, first + view.window - view.locked)
            # Before the lock: from here on these are below `next`, and nobody finds them a second time (Q1).
            pool.next = upto
            granted = self._lock(pool, view, first, upto, now_ms)
        rooms.again(view)
        return granted

    def _lock(self, pool: Pool, view: BorrowerView, first: int, upto: int, now_ms: int) -> Effect:
        extent = pool.view.extent_at(first)
        assert extent is not None
        assert upto <= extent.end
        self._count(view, upto - first)
        return self.grant(extent.stream, view.id, now_ms, ((first, upto),))

    def _count_of(self, lease: Lease, change: int) -> None:
        """What is gone is told in one piece, and takes no room: nothing of it is delivered."""
        self._count(self.borrowers[lease.borrower], 0 if lease.is_gone else change)

    def _count(self, view: BorrowerView, change: int) -> None:
        """The only place where `locked` changes, so that Q2 and Q3 are kept together."""
        view.locked += change
        assert view.locked >= 0, f"{view.id} has {view.locked} messages"
        if change > 0:
            # Behind the others that have as few: single messages go round.
            self._roomy.pop(view.id, None)
        if view.locked < view.window:
            self._roomy[view.id] = None
        else:
            self._roomy.pop(view.id, None)

    def _note(self, shard: Shard) -> None:
        """Whether there is anything to hand out of this shard."""
        pool = self._pool(shard)
        for noted, is_there in ((self._waiting, pool.has_fresh()), (self._refilled, pool.back)):
            if is_there:
                noted[shard] = None
            else:
                noted.pop(shard, None)

    def cursor_for(self, lease: Lease) -> Cursor:
        """Only what failed before: a lease of ranges says nothing of what is around them."""
        failures = self.shards[lease.stream.shard].progress.failures
        mine = tuple(sorted(item for item in failures.items() if item[0] in lease.open))
        return Cursor(0, (), mine)

    # --- members come and go ----------------------------------------------------------------------

    def joined(self, view: BorrowerView) -> None:
        self._count(view, 0)

    def left(self, view: BorrowerView) -> None:
        super().left(view)
        # Last: each lock that is dropped makes room, and would put it in again.
        self._roomy.pop(view.id, None)

    # --- streams grow -----------------------------------------------------------------------------

    def replan_shards(self, now_ms: int) -> list[Effect]:
        for shard, view in self.shards.items():
            self._note(shard)
            if view.progress.low < view.first:
                self._gone[shard] = None
        return self.replan(now_ms)

    # --- taking back ------------------------------------------------------------------------------

    def merge(self, lease: Lease, cursor: Cursor) -> bool:
        is_new = super().merge(lease, cursor)
        if lease.open:
            # Also where nothing is new: another had acknowledged it meanwhile, and this lock is on it still.
            before = len(lease.open)
            lease.open.remove(0, cursor.offset)
            for first, upto in cursor.acked:
                lease.open.remove(first, upto)
            self._count_of(lease, len(lease.open) - before)
        return is_new

    def take_returned(self, lease: Lease, returned: tuple[Range, ...]) -> bool:
        if not lease.open:
            return False
        before = len(lease.open)
        pool = self._pool(lease.stream.shard)
        failures = pool.view.progress.failures
        for first, upto in returned:
            # Only what the lock still has: a report says all that ever came back under the lease, and another
            # may have some of it by now.
            for start, stop in lease.open.clip(first, upto):
                pool.put_back(start, stop)
                for offset in [offset for offset in failures if start <= offset < stop]:
                    pool.put_back(offset, offset + 1, offset, lease.borrower)
            lease.open.remove(first, upto)
        self._note(lease.stream.shard)
        self._count_of(lease, len(lease.open) - before)
        return len(lease.open) != before

    def is_done(self, lease: Lease) -> bool:
        return not lease.open

    def finish_if_done(self, lease: Lease, now_ms: int) -> list[Effect]:
        # A plan with each report: it may have made room, or brought something back for another.
        return super().finish_if_done(lease, now_ms) + self.replan(now_ms)

    def drop(self, lease: Lease) -> None:
        # Unlocked while its member is still known: what it has open is counted off there.
        self._unlock(lease)
        super().drop(lease)

    def _unlock(self, lease: Lease, refused: int | None = None) -> None:
        """What of a lease is not done is for others."""
        pool = self._pool(lease.stream.shard)
        for first, upto in lease.open:
            is_here = refused is not None and first <= refused < upto
            pool.put_back(first, upto, refused if is_here else None, lease.borrower)
        self._count_of(lease, -len(lease.open))
        lease.open = Ranges()
        self._note(lease.stream.shard)

    def blame(self, view: BorrowerView) -> None:
        for lease in view.leases.values():
            self._blame_for(lease)

    def _blame_for(self, lease: Lease) -> int | None:
        """The oldest that the member has of a lease counts as failed; what is behind it only waited."""
        if lease.is_gone or not lease.open or lease.open.first >= lease.delivered:
            return None
        view = self.shards[lease.stream.shard]
        view.progress.fail(lease.open.first)
        self.commits.note(view.shard)
        return lease.open.first

    def expire(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for lease in list(self.leases.values()):
            if (
                lease.status is Status.GRANTED
                and now_ms - lease.progress_ms >= self.options.lock_ms
            ):
                # The lock is over: its messages are for others, and its member may go on with the rest.
                self._unlock(lease, self._blame_for(lease))
                effects += self.finish_if_done(lease, now_ms)
        return effects

    def regrant(self, now_ms: int) -> list[Effect]:  # noqa: ARG002
        """Locks do not last: what is handed out from now on has the new limit."""
        return []

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        locked: Counter[str] = Counter()
        for lease in self.leases.values():
            locked[lease.borrower] += 0 if lease.is_gone else len(lease.open)
        for view in self.borrowers.values():
            counted, has_room = locked[view.id], view.locked < view.window
            assert view.locked == counted, f"Q2: {view.id} has {counted}, not {view.locked}"
            assert has_room == (view.id in self._roomy), f"Q3: {view.id} has room: {has_room}"
        assert self._roomy.keys() <= self.borrowers.keys(), "Q3: room at somebody who is gone"
        for shard, pool in self._pools.items():
            pool.check()
            assert not pool.back or shard in self._refilled, f"Q5: {shard} has {pool.back}"

    def check_exclusive(self) -> None:
        for shard, pool in self._pools.items():
            view = pool.view
            taken = list(pool.back)
            for lease in view.leases.values():
                taken += lease.open
            taken.sort()
            for (_, upto), (first, _) in pairwise(taken):
                assert upto <= first, f"Q1: {shard} at {first} is taken twice"
            end = taken[-1][1] if taken else 0
            assert end <= pool.next, f"Q1: {shard} at {end} is fresh from {pool.next}, and taken"
            handed_out = view.progress.open_ranges(0, min(pool.next, view.end))
            known = Ranges(taken) if handed_out else Ranges()
            for first, upto in handed_out:
                assert not known.missing(first, upto), f"Q4: {shard} {first}-{upto} is lost"


class QueueLeader(Leader):
    """The same protocol, over locks."""

    lending_kind: ClassVar[type[StreamLending]] = QueueLending


class _Rooms:
    """Members that can take something, the one with fewest messages first: whoever is slow gets less.

    Of several with as few it is whoever has waited longest. The size of a window bounds what a member has,
    and says nothing of what it should have: a wide one gets no more than its share while there is little.
    """

    def __init__(self, views: Iterable[BorrowerView]) -> None:
        self._heap = [(view.locked, turn, view) for turn, view in enumerate(views)]
        self._turns = len(self._heap)
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def next(self, except_for: str = "") -> BorrowerView | None:
        """Takes out the one with fewest messages that is not that one; `again` puts it back."""
        passed = None
        # Ids are unique: if the first is that one, the second is not.
        if self._heap and self._heap[0][2].id == except_for:
            passed = heappop(self._heap)
        view = heappop(self._heap)[2] if self._heap else None
        if passed is not None:
            heappush(self._heap, passed)
        return view

    def again(self, view: BorrowerView) -> None:
        if view.locked < view.window:
            # A higher number than all: of those with as few messages it is now the last.
            self._turns += 1
            heappush(self._heap, (view.locked, self._turns, view))
