"""A Leader in a test: what it hears in short words, and what it said."""

from collections.abc import Iterable
from typing import TypeVar

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect, Event, Received, Send, TimerFired
from moorline.core.group.events import Commit, Committed, GapFound, LeaderOptions, Led, ShardsSeen
from moorline.core.group.leader import Leader
from moorline.core.group.message import (
    Disconnect,
    FromBorrower,
    FromLeader,
    Grant,
    LeaderWanted,
    Ping,
    RevokeFinished,
    UpdateProgress,
    lease_item,
)
from moorline.core.ranges import Range
from moorline.core.sets.digest import Digest
from moorline.core.stream import Extent, Gap, Shard, Stream

EPOCH = 3
LEASE_UNTIL_MS = 10_000_000
OPTIONS = LeaderOptions()

Message = TypeVar("Message", bound=FromLeader)


def shard(number: int) -> Shard:
    return Shard("n1", number)


def stream(number: int, generation: int = 0) -> Stream:
    return Stream("n1", number, generation)


def growing(number: int, end: int = 100) -> tuple[Shard, tuple[Extent, ...], int]:
    """A shard with one generation, read from its start on."""
    return (shard(number), (Extent(stream(number), 0, end, False),), 0)


class LeaderScene:
    """Drives one Leader. Commits are answered at once unless `answers` is off."""

    def __init__(
        self,
        kind: type[Leader] = Leader,
        cursors: Iterable[tuple[Shard, Cursor]] = (),
        options: LeaderOptions = OPTIONS,
        lease_until_ms: int = LEASE_UNTIL_MS,
    ) -> None:
        self.leader = kind("g", "n1", EPOCH, cursors, lease_until_ms, options)
        self.now_ms = 0
        self.number = 0
        self.answers = True
        self.commits: list[Commit] = []
        self.gaps: list[GapFound] = []
        self.said: list[FromLeader] = []
        """Everything since the last `take`."""
        self.tell(Led())

    def tell(self, event: Event) -> list[Effect]:
        effects = self.leader.handle(event, self.now_ms)
        self.leader.check()
        self.said += [effect.message for effect in effects if isinstance(effect, Send)]
        self.gaps += [effect for effect in effects if isinstance(effect, GapFound)]
        for effect in effects:
            if isinstance(effect, Commit):
                self.commits.append(effect)
                if self.answers:
                    self.tell(Committed(effect.number))
                    self.tell(TimerFired("commit"))
        return effects

    def hear(self, message: FromBorrower) -> list[Effect]:
        return self.tell(Received(message.borrower, message))

    def after(self, passed_ms: int, timer: str = "tick") -> list[Effect]:
        self.now_ms += passed_ms
        return self.tell(TimerFired(timer))

    def take(self, kind: type[Message]) -> list[Message]:
        """What it said of that kind, and forgets what else it said."""
        said, self.said = self.said, []
        return [message for message in said if isinstance(message, kind)]

    # --- in short words ---------------------------------------------------------------------------

    def streams(self, count: int, end: int = 100) -> None:
        self.tell(ShardsSeen(tuple(growing(number, end) for number in range(count))))

    def join(self, *borrowers: str, window: int = 16) -> None:
        for borrower in borrowers:
            self.hear(LeaderWanted(borrower, f"member of {borrower}", window))
        self.after(OPTIONS.replan_ms, "replan")

    def report(
        self,
        borrower: str,
        lease: int,
        cursor: Cursor | None = None,
        *,
        delivered: int = 0,
        final: bool = False,
        returned: tuple[Range, ...] = (),
        lost: tuple[Gap, ...] = (),
    ) -> None:
        self.number += 1
        self.hear(
            UpdateProgress(
                borrower, EPOCH, self.number, lease, cursor, delivered, final, returned, lost
            )
        )

    def finished(self, borrower: str, lease: int, lost: tuple[Gap, ...] = ()) -> None:
        self.number += 1
        self.hear(RevokeFinished(borrower, EPOCH, self.number, lease, lost))

    def ping(self, borrower: str, *leases: tuple[int, Stream]) -> None:
        self.number += 1
        digest = Digest.of(lease_item(lease, of) for lease, of in leases)
        self.hear(Ping(borrower, EPOCH, self.number, bytes(digest)))

    def leave(self, borrower: str, *cursors: tuple[int, Cursor], epoch: int = EPOCH) -> None:
        self.hear(Disconnect(borrower, epoch, cursors))

    def confirm(self) -> list[Grant]:
        """Every grant that was said is taken by its Borrower."""
        grants = self.take(Grant)
        for grant in grants:
            self.report(grant.borrower, grant.lease, grant.cursor)
        return grants

    def hand_over(self, borrower: str, lease: int, cursor: Cursor = Cursor(0)) -> None:  # noqa: B008
        """The old owner finishes a lease that was revoked."""
        self.report(borrower, lease, cursor, final=True)
        self.finished(borrower, lease)

    def owners(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {borrower: [] for borrower in self.leader.borrowers}
        for lease in self.leader.leases.values():
            found[lease.borrower].append(lease.stream.shard_number)
        return {borrower: sorted(shards) for borrower, shards in found.items()}

    def cursors(self) -> dict[Shard, Cursor]:
        """What is stored."""
        return {shard: cursor for commit in self.commits for shard, cursor in commit.cursors}
