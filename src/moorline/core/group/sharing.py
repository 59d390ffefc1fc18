"""Room: core/group. Who holds what in a group: its shards, its members, and the leases between them.

A lease is known three times, by its number, at its shard and at its member: a report names the number,
a plan asks the shard, and a silence ends all of a member. They change together here and nowhere else.

Invariants, looked at by `check`:

    G1  a lease is known by its number, at its shard and at its member, or nowhere; numbers are drawn once
    G3  what is meant for somebody is on its way to them: nobody has it, or whoever has it gives it back
"""

from collections.abc import Iterable

from moorline.core.delivery.progress import Cursor
from moorline.core.group.assign import Plan, assignment
from moorline.core.group.stream_lease import Lease, Status
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
        view.meant_for = ""
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
        meant: dict[str, list[Shard]] = {borrower: [] for borrower in self.borrowers}
        free: list[Shard] = []
        moving = 0
        # By number before node: whoever gets a part gets some of every node, and not all of one.
        for shard, view in sorted(
            self.shards.items(), key=lambda one: (one[0].number, one[0].home)
        ):
            lease = next(iter(view.leases.values()), None)
            if view.meant_for not in self.borrowers or (lease is None and view.current() is None):
                view.meant_for = ""
            if view.meant_for:
                # It counts as theirs from the moment on at which it was given away: else the shares would
                # change while it is under way, and somebody else would get it.
                meant[view.meant_for].append(shard)
            elif lease is not None and lease.is_leaving:
                # Nobody's, and nobody's to grant yet. It counts in the shares all the same: else what comes
                # back next would change them, and streams would be revoked to and fro.
                moving += 1
            elif lease is not None:
                held[lease.borrower].append(shard)
            elif view.current() is not None:
                # One that has nothing to read, sealed to its end, is no stream that anybody could have.
                free.append(shard)
        before = {shard: self.shards[shard].owner for shard in free}
        # What is meant for a member is first in its list: where it has too many it gives up another one.
        both = {member: meant[member] + held[member] for member in held}
        plan = assignment(both, free, moving, before)
        for shard in (shard for shard, member in plan.revokes if shard in meant[member]):
            # More members have come, and it has no room: it is nobody's, and for the next plan.
            self.shards[shard].meant_for = ""
        arrived = [
            (shard, member)
            for member in sorted(meant)
            for shard in meant[member]
            if self.shards[shard].meant_for and not self.shards[shard].leases
        ]
        revokes = [one for one in plan.revokes if one[0] not in meant[one[1]]]
        return Plan(arrived + plan.grants, revokes)

    def is_quiet(self) -> bool:
        """Whether everybody has what they should have by number, and nothing is under way."""
        is_settled = all(lease.status is Status.GRANTED for lease in self.leases.values())
        counts = [len(view.leases) for view in self.borrowers.values()] or [0]
        return (
            is_settled
            and max(counts) - min(counts) <= 1
            and all(view.leases or view.current() is None for view in self.shards.values())
        )

    def held(self) -> dict[str, list[Shard]]:
        """Who has which shards."""
        return {
            borrower: sorted(lease.stream.shard for lease in view.leases.values())
            for borrower, view in self.borrowers.items()
        }

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
        """Asserts G1, with numbers that are drawn once, and G3."""
        for number, lease in self.leases.items():
            shard = self.shards.get(lease.stream.shard)
            member = self.borrowers.get(lease.borrower)
            is_at_shard = shard is not None and shard.leases.get(number) is lease
            is_at_member = member is not None and member.leases.get(number) is lease
            assert is_at_shard and is_at_member, f"G1: lease {number} is not known everywhere"  # noqa: PT018
            assert 0 < number == lease.number < self._next_number, f"G1: lease {number} is new"
        for view in self.shards.values():
            if view.meant_for:
                is_leaving = all(lease.is_leaving for lease in view.leases.values())
                assert is_leaving, f"G3: {view.shard} is meant for {view.meant_for}, and held"
        for views in (self.shards, self.borrowers):
            # All of ours are at both, so as many at each means that there is no other.
            listed = sum(len(view.leases) for view in views.values())
            assert listed == len(self.leases), f"G1: {listed} leases are listed"
