"""What stands around the machines of a group in its simulation: streams, a catalog, nodes that lead."""

import random
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import CancelTimer, Effect, Event, Received, Send, SetTimer, TimerFired
from moorline.core.frames.block import Block, block_of
from moorline.core.frames.frame import Stored, frame_of
from moorline.core.group.events import (
    Commit,
    CommitFailed,
    Committed,
    EndsSeen,
    Fenced,
    GapFound,
    Kick,
    LeaderOptions,
    LeaseHeld,
    Led,
    LookAtEnds,
    ShardsSeen,
    Stopped,
)
from moorline.core.group.leader import Leader
from moorline.core.group.message import FromBorrower, LeaderWanted
from moorline.core.stream import RETENTION, Extent, Gap, Shard, Stream

LEASE_MS = 600
CATALOG = "catalog"

OPTIONS = LeaderOptions(
    tick_ms=50,
    resend_ms=100,
    replan_ms=20,
    commit_ms=10,
    commit_retry_ms=50,
    borrower_ms=600,
    revoke_ms=1_000,
    idle_ms=2_000,
    deliveries_max=4,
    lock_ms=1_000,
    load_ms=40,
    # Enough of a few messages, so that streams are exchanged in whatever else happens.
    load_least=2,
)

Offset = tuple[Shard, int]


@dataclass
class World:
    """The streams, the catalog's rows, and what members did: what the test knows better than anybody."""

    shards: list[Shard]
    mode: type[Leader] = Leader
    options: LeaderOptions = OPTIONS
    rejects: float = 0.03
    ends: dict[Shard, int] = field(default_factory=dict)
    sealed: dict[Shard, list[int]] = field(default_factory=dict)
    """Where a shard's sealed generations end."""
    dropped: dict[Shard, int] = field(default_factory=dict)
    """Retention took everything below."""
    version: int = 0
    """Rises with every change of a stream."""
    epoch: int = 0
    holder: str = ""
    lease_until_ms: int = 0
    claimed: tuple[str, int] = ("", 0)
    cursors: dict[Shard, Cursor] = field(default_factory=dict)
    missing: set[Offset] = field(default_factory=set)
    """Published, and nobody has acknowledged or buried it, or was told that it is lost."""
    processed: Counter[Offset] = field(default_factory=Counter)
    rejected: Counter[Offset] = field(default_factory=Counter)
    buried: Counter[Offset] = field(default_factory=Counter)
    told: Counter[Offset] = field(default_factory=Counter)
    """What clients were told to be lost, whether it matches or not."""
    beyond: set[Offset] = field(default_factory=set)
    """What failed as often as it may: it is buried and delivered no more."""
    first_seen: dict[Shard, int] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    gaps: list[GapFound] = field(default_factory=list)
    stopped: Counter[str] = field(default_factory=Counter)
    stored: set[Shard] = field(default_factory=set)
    """Shards whose cursor has changed since somebody looked."""
    touched: set[str] = field(default_factory=set)
    """Nodes and members that did something since somebody looked."""
    exchanged: int = 0
    """Streams that were taken back for what they carry."""
    weights: list[int] = field(default_factory=list)
    """How much more is published to some shards than to others; the same to each if there are none."""
    is_calm: bool = False
    checks_order: bool = True

    def __post_init__(self) -> None:
        self._extents: dict[Shard, tuple[Extent, ...]] = {}
        for shard in self.shards:
            self.ends[shard] = self.dropped[shard] = 0
            self.sealed[shard] = []
            self._changed(shard)

    def matches(self, offset: Offset) -> bool:
        return (offset[1] * 7 + offset[0].number) % 5 != 0

    def is_poison(self, offset: Offset) -> bool:
        return (offset[1] * 31 + offset[0].number) % 97 == 0

    def is_done(self, offset: Offset) -> bool:
        return offset not in self.missing

    def extents(self, shard: Shard) -> tuple[Extent, ...]:
        return self._extents[shard]

    def _changed(self, shard: Shard) -> None:
        found, first = [], 0
        for generation, end in enumerate([*self.sealed[shard], self.ends[shard]]):
            is_sealed = generation < len(self.sealed[shard])
            if not is_sealed or end > self.dropped[shard]:
                stream = Stream(shard.home, shard.number, generation)
                found.append(Extent(stream, first, end, is_sealed))
            first = end
        self._extents[shard] = tuple(found)
        self.version += 1

    def shards_seen(self) -> ShardsSeen:
        return ShardsSeen(tuple((shard, self.extents(shard), 0) for shard in self.shards))

    def publish(self, chance: random.Random) -> None:
        (shard,) = chance.choices(self.shards, self.weights or None)
        first = self.ends[shard]
        self.ends[shard] += chance.randint(1, 4)
        for number in range(first, self.ends[shard]):
            if self.matches((shard, number)):
                self.missing.add((shard, number))
        if chance.random() < 0.05:
            self.sealed[shard].append(self.ends[shard])
        self._changed(shard)

    def drop_oldest(self, chance: random.Random) -> None:
        """Retention takes the oldest sealed generation of a shard."""
        shard = chance.choice(self.shards)
        oldest = next((end for end in self.sealed[shard] if end > self.dropped[shard]), None)
        if oldest is not None:
            self.dropped[shard] = oldest
            self._changed(shard)

    def read(self, stream: Stream, offset: int, count: int) -> Block | Gap | None:
        """Some messages of a stream from that one on; None at its end."""
        shard = stream.shard
        if offset < self.dropped[shard]:
            return Gap(offset, self.dropped[shard], RETENTION)
        kept = (extent.end for extent in self.extents(shard) if extent.stream == stream)
        upto = min(next(kept, 0), offset + count)
        if upto <= offset:
            return None
        frames = [self._frame(shard, number) for number in range(offset, upto)]
        starts = np.cumsum([0, *map(len, frames[:-1])], dtype=np.int64)
        return block_of(offset, b"".join(frames), starts)

    def _frame(self, shard: Shard, number: int) -> bytes:
        topic = "wanted" if self.matches((shard, number)) else "other"
        return frame_of(Stored(number, 0, 0, 0, topic, None, b"", 0, 0, b""), 0)

    def process(self, offset: Offset) -> None:
        self.processed[offset] += 1
        self.missing.discard(offset)

    def bury(self, offset: Offset) -> None:
        self.buried[offset] += 1
        self.missing.discard(offset)

    def tell_lost(self, offset: Offset) -> None:
        assert offset[1] < self.dropped[offset[0]], f"{offset} is there, and was told to be lost"
        self.told[offset] += 1
        self.missing.discard(offset)

    def duplicates(self) -> int:
        return sum(count - 1 for count in self.processed.values())


# --- the catalog ----------------------------------------------------------------------------------


class Claim(msgspec.Struct, frozen=True):
    asked_ms: int


class Claimed(msgspec.Struct, frozen=True):
    """`epoch` 0: another one leads, and that is `holder`."""

    epoch: int
    holder: str
    cursors: tuple[tuple[Shard, Cursor], ...]
    asked_ms: int
    holder_epoch: int = 0


class Renew(msgspec.Struct, frozen=True):
    epoch: int
    asked_ms: int


class Renewed(msgspec.Struct, frozen=True):
    epoch: int
    asked_ms: int
    ok: bool


class Store(msgspec.Struct, frozen=True):
    epoch: int
    commit: Commit


class StoreAnswer(msgspec.Struct, frozen=True):
    epoch: int
    number: int
    ok: bool


class CatalogNode:
    """Conditional writes with a lease and an epoch; its rows outlive its crashes."""

    def __init__(self, world: World) -> None:
        self.world = world

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        world = self.world
        match event:
            case Received(peer, Claim(asked_ms)):
                if world.holder not in ("", peer) and now_ms < world.lease_until_ms:
                    return [Send(peer, Claimed(0, world.holder, (), asked_ms, world.epoch))]
                if world.claimed == (peer, asked_ms):
                    return []  # a claim is asked for once, whatever the net does
                world.claimed = (peer, asked_ms)
                world.epoch += 1
                world.holder, world.lease_until_ms = peer, now_ms + LEASE_MS
                cursors = tuple(world.cursors.items())
                return [Send(peer, Claimed(world.epoch, peer, cursors, asked_ms))]
            case Received(peer, Renew(epoch, asked_ms)):
                ok = epoch == world.epoch
                if ok:
                    world.lease_until_ms = max(world.lease_until_ms, now_ms + LEASE_MS)
                return [Send(peer, Renewed(epoch, asked_ms, ok))]
            case Received(peer, Store(epoch, commit)):
                ok = epoch == world.epoch
                if ok:
                    self._store(commit)
                return [Send(peer, StoreAnswer(epoch, commit.number, ok))]
            case _:
                return []

    def _store(self, commit: Commit) -> None:
        """As the real one: a cursor that is below the stored one is passed over."""
        for shard, cursor in commit.cursors:
            before = self.world.cursors.get(shard)
            if before is None or cursor.offset >= before.offset:
                self.world.cursors[shard] = cursor
                self.world.stored.add(shard)


# --- a node that may lead -------------------------------------------------------------------------


class LeadingNode:
    """The registry of a node: passes on what Borrowers want, and leads if nobody else does."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.leader: Leader | None = None
        self.homes: dict[str, str] = {}
        self.wanted: dict[str, LeaderWanted] = {}
        self.claiming_ms = -1_000
        self.seen = -1
        self.now_ms = 0

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        leader = self.leader
        match event:
            case Received(_, (str() as home, FromBorrower() as message)):
                return self._from_borrower(home, message)  # passed on by another registry
            case Received(peer, FromBorrower() as message):
                return self._from_borrower(peer, message)
            case Received(_, Claimed() as claimed):
                return self._claimed(claimed)
            case TimerFired("look"):
                return [SetTimer("look", 20), *self._look()]
            case _ if leader is None:
                return []
            case Received(_, Renewed(epoch, asked_ms, ok)) if leader.epoch == epoch:
                return self._lead(LeaseHeld(asked_ms + LEASE_MS) if ok else Fenced())
            case Received(_, StoreAnswer(epoch, number, ok)) if leader.epoch == epoch:
                return self._lead(Committed(number) if ok else Fenced())
            case Kick():
                return self._lead(event)
            case TimerFired("renew"):
                renew = Renew(leader.epoch, now_ms)
                return [Send(CATALOG, renew), SetTimer("renew", LEASE_MS // 4)]
            case TimerFired(name):
                kind, epoch_text, rest = name.split(" ", 2)
                if int(epoch_text) != leader.epoch:
                    return []
                return self._lead(CommitFailed(int(rest)) if kind == "late" else TimerFired(rest))
            case _:
                return []

    def _look(self) -> list[Effect]:
        if self.leader is None or self.seen == self.world.version:
            return []
        self.seen = self.world.version
        return self._lead(self.world.shards_seen())

    def _from_borrower(self, home: str, message: FromBorrower) -> list[Effect]:
        self.homes[message.borrower] = home
        if self.leader is not None:
            return self._lead(Received(message.borrower, message))
        if isinstance(message, LeaderWanted):
            self.wanted[message.borrower] = message
            if self.now_ms - self.claiming_ms > 100:
                self.claiming_ms = self.now_ms
                return [Send(CATALOG, Claim(self.now_ms))]
        return []

    def _claimed(self, claimed: Claimed) -> list[Effect]:
        self.claiming_ms = -1_000
        wanted, self.wanted = self.wanted, {}
        if claimed.epoch == 0:
            if claimed.holder == self.name:
                return []
            return [Send(claimed.holder, (self.homes[name], wanted[name])) for name in wanted]
        if self.leader is not None and self.leader.epoch >= claimed.epoch:
            return []
        self.leader = self.world.mode(
            "g",
            self.name,
            claimed.epoch,
            claimed.cursors,
            claimed.asked_ms + LEASE_MS,
            self.world.options,
        )
        self.seen = -1
        effects = [*self._lead(Led()), *self._look(), SetTimer("renew", LEASE_MS // 4)]
        for name, message in wanted.items():
            if self.leader is not None:
                effects += self._lead(Received(name, message))
        return effects

    def _lead(self, event: Event) -> list[Effect]:
        assert self.leader is not None
        self.world.touched.add(self.name)
        leader, effects = self.leader, list[Effect]()
        told = leader.handle(event, self.now_ms)
        # Before its effects, as the simulator does it: they may stop this Leader.
        leader.check()
        for effect in told:
            match effect:
                case Send(borrower, message):
                    effects.append(Send(self.homes[borrower], message))
                case SetTimer(name, after_ms):
                    effects.append(SetTimer(f"leader {leader.epoch} {name}", after_ms))
                case CancelTimer(name):
                    effects.append(CancelTimer(f"leader {leader.epoch} {name}"))
                case Commit():
                    effects.append(Send(CATALOG, Store(leader.epoch, effect)))
                    effects.append(SetTimer(f"late {leader.epoch} {effect.number}", 150))
                case Stopped(reason):
                    self.world.stopped[reason] += 1
                    self.leader = None
                case GapFound():
                    self.world.gaps.append(effect)
                case LookAtEnds():
                    seen = self._lead(EndsSeen(tuple(self.world.ends.items())))
                    self.world.exchanged += sum(isinstance(one, Send) for one in seen)
                    effects += seen
                case _:
                    raise AssertionError(effect)
        return effects
