"""Room: core/group. Who holds what in a group: its shards, its members, and the leases between them.

A lease is known three times, by its number, at its shard and at its member: a report names the number,
a plan asks the shard, and a silence ends all of a member. They change together here and nowhere else.

Invariant, looked at by `check`:

    G1  a lease is known by its number, at its shard and at its member, or nowhere; numbers are drawn once
"""

from collections.abc import Iterable

from moorline.core.delivery.progress import Cursor
from moorline.core.group.assign import Plan, assignment
from moorline.core.group.stream_lease import Lease
from moorline.core.group.views import BorrowerView, Lag, ShardView
from moorline.core.ranges import Range
from moorline.core.stream import Shard, Stream


class Sharing:
    """What a Leader shares out, and who has it."""

    def __init__(self, cursors: Iterable[tuple[Shard, Cursor]]) -> None:
        self.shards: dict[Shard, ShardView] = {
            shard: ShardView(shard, cursor) for shard, cursor in cursors
        }
        self.borrowers: dict[str, BorrowerView] = {}
        self.leases: dict[int, Lease] = {}
        # Never reused under an epoch: a late word about a lease that is over must not meet another one.
        self._next_number = 1

    def grant(
        self, stream: Stream, borrower: str, now_ms: int, ranges: tuple[Range, ...] | None
    ) -> Lease:
        lease = Lease(self._next_number, stream, borrower, now_ms, ranges)
        self._next_number += 1
        view = self.shards[stream.shard]
        # Outlives the lease: whoever had a stream has its blocks in memory, and gets it back if it can.
        view.owner = borrower
        self.leases[lease.number] = lease
        view.leases[lease.number] = lease
        self.borrowers[borrower].leases[lease.number] = lease
        return lease

    def drop(self, lease: Lease) -> None:
        del self.leases[lease.number]
        del self.shards[lease.stream.shard].leases[lease.number]
        del self.borrowers[lease.borrower].leases[lease.number]

    def was_granted(self, number: int) -> bool:
        """Whether there is or was a lease of that number."""
        return number < self._next_number

    def plan(self) -> Plan[Shard]:
        """What to take back and what to grant, where one member has all of a stream."""
        held: dict[str, list[Shard]] = {borrower: [] for borrower in self.borrowers}
        free: list[Shard] = []
        moving = 0
        # By number before node: whoever gets a part gets some of every node, and not all of one.
        for shard, view in sorted(
            self.shards.items(), key=lambda one: (one[0].number, one[0].home)
        ):
            lease = next(iter(view.leases.values()), None)
            if lease is not None and lease.is_leaving:
                # Nobody's, and nobody's to grant yet. It counts in the shares all the same: else what comes
                # back next would change them, and streams would be revoked to and fro.
                moving += 1
            elif lease is not None:
                held[lease.borrower].append(shard)
            elif view.current() is not None:
                # One that has nothing to read, sealed to its end, is no stream that anybody could have.
                free.append(shard)
        before = {shard: self.shards[shard].owner for shard in free}
        return assignment(held, free, moving, before)

    def lags(self) -> list[Lag]:
        """Stream by stream: where the group is, how far behind, and who reads it."""
        found = []
        for shard, view in sorted(self.shards.items()):
            lease = next(iter(view.leases.values()), None)
            owner = self.borrowers[lease.borrower].member if lease is not None else ""
            status = lease.status.value if lease is not None else "free"
            found.append(Lag(shard, view.progress.low, view.end, view.lag, owner, status))
        return found

    def check(self) -> None:
        """Asserts G1, and that numbers are drawn once."""
        for number, lease in self.leases.items():
            shard = self.shards.get(lease.stream.shard)
            member = self.borrowers.get(lease.borrower)
            is_at_shard = shard is not None and shard.leases.get(number) is lease
            is_at_member = member is not None and member.leases.get(number) is lease
            assert is_at_shard and is_at_member, f"G1: lease {number} is not known everywhere"  # noqa: PT018
            assert 0 < number == lease.number < self._next_number, f"G1: lease {number} is new"
        for views in (self.shards, self.borrowers):
            # All of ours are at both, so as many at each means that there is no other.
            listed = sum(len(view.leases) for view in views.values())
            assert listed == len(self.leases), f"G1: {listed} leases are listed"
