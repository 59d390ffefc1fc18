"""Room: core/records. The client's side: a copy of the rows that it asked for, and what to ask for next.

    effects = copy.handle(RecordCame(key, seq, row), now_ms)

It applies records and deletions as they come, keeps the digest of what it has, and compares it with what
the node says at each end of a sync. If they differ it says so and heals: it subscribes again without its
cursor, by digest. What was cut off goes on from what is there.

    subscribes with     when
    cursor, digest      a sync ended, and only live changes and replays came since
    digest              there are rows, and no cursor that says of what moment they are
    nothing             there is nothing: everything comes

A full sync removes at its end what it did not bring, so that a reader sees no empty table in between, and
one that is cut off loses nothing.

Invariants, looked at by `check`:

    CO1  the digest is that of the rows
    CO2  a cursor is kept only with the rows that it is of, but for a replay or a live sync that has not ended
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from typing import ClassVar

import numpy as np

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import RowDigest, digest_of_rows, row_hashes
from moorline.core.records.table import Key
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.sketch import Words
from moorline.limits import RECORD_HEALS_MAX


class Connected(Event, frozen=True):
    """There is a link, to any node."""


class LinkLost(Event, frozen=True):
    """It is gone, or the node cut it."""


class Started(Event, frozen=True):
    sync: int
    how: How
    salt: int | None = None


class RecordCame(Event, frozen=True):
    key: Key
    seq: int
    row: bytes


class DeletionCame(Event, frozen=True):
    key: Key


class Ended(Event, frozen=True):
    sync: int
    cursor: str
    digest: Digest


class Subscribe(Effect, frozen=True):
    sync: int
    cursor: str
    digest: Digest | None


class Reconcile(Effect, frozen=True):
    """Ask until both are equal (`CopyRepairer`), then say that it is done."""

    sync: int


class Store(Effect, frozen=True):
    """The copy is proven to be that of this cursor."""

    cursor: str
    digest: Digest


class Drifted(Effect, frozen=True):
    """The copy was not what the node says it should be; it heals."""

    own: Digest
    theirs: Digest


class Copying(Enum):
    APART = "apart"
    ASKING = "asking"
    SYNCING = "syncing"
    SYNCED = "synced"


class Copy(Machine[Copying]):
    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        Copying.APART: frozenset({Copying.ASKING}),
        Copying.ASKING: frozenset({Copying.SYNCING, Copying.APART}),
        Copying.SYNCING: frozenset({Copying.SYNCED, Copying.ASKING, Copying.APART}),
        Copying.SYNCED: frozenset({Copying.SYNCING, Copying.ASKING, Copying.APART}),
    }

    def __init__(
        self,
        name: str,
        salt: int = 0,
        rows: Mapping[Key, tuple[int, bytes]] | None = None,
        cursor: str = "",
    ) -> None:
        super().__init__(name, Copying.APART)
        self.rows: dict[Key, tuple[int, bytes]] = dict(rows or {})
        self.cursor = cursor
        self.sync = 0
        self.salt = salt
        self._digest = RowDigest(salt, digest_of_rows(salt, self._versions()))
        self._how = How.LIVE
        self._is_foreign = False
        """What comes is of a subscription that was changed since."""
        self._unseen: set[Key] | None = None
        """In a full sync, what it has not brought so far."""
        self._heals = 0

    def digest(self) -> Digest:
        return self._digest.digest()

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event:
            case Connected():
                return self._subscribe()
            case LinkLost():
                # All that was applied stays: the next sync goes on from it.
                self._unseen = None
                self.move(Copying.APART)
                return []
            case _ if self.state is Copying.APART:
                # It was on its way when the link went.
                return []
            case Started():
                return self._start(event)
            case RecordCame(key, seq, row):
                if not self._is_foreign:
                    self._put(key, seq, row)
                return []
            case DeletionCame(key):
                if not self._is_foreign:
                    self._remove(key)
                return []
            case Ended():
                return self._end(event)
            case _:
                raise AssertionError(f"{event} is none of a copy")

    def change(self) -> list[Effect]:
        """Another filter: what is there is compared with it, and older messages are not taken any more."""
        self.cursor = ""
        return self._subscribe()

    def _subscribe(self) -> list[Effect]:
        self.sync += 1
        self._is_foreign = True
        self._unseen = None
        self.move(Copying.ASKING)
        return [Subscribe(self.sync, self.cursor, self.digest() if self.rows else None)]

    def _start(self, event: Started) -> list[Effect]:
        self._is_foreign = event.sync != self.sync
        if self._is_foreign:
            return []
        if event.salt is not None and event.salt != self.salt:
            self.salt = event.salt
            self._digest = RowDigest(self.salt, digest_of_rows(self.salt, self._versions()))
        self._how = event.how
        self._unseen = set(self.rows) if event.how is How.FULL else None
        self.move(Copying.SYNCING)
        if event.how in (How.LIVE, How.REPLAY):
            # Cut off within these, the cursor still leads on; what came and went shows in the digest.
            return []
        self.cursor = ""
        return [Reconcile(self.sync)] if event.how is How.DIGEST else []

    def _end(self, event: Ended) -> list[Effect]:
        if event.sync != self.sync or self._is_foreign:
            return []
        for key in self._unseen or ():
            self._remove(key, is_seen=True)
        self._unseen = None
        own = self.digest()
        if own == event.digest:
            self._heals = 0
            self.cursor = event.cursor
            self.move(Copying.SYNCED)
            return [Store(event.cursor, own)]
        self._heals += 1
        self.cursor = ""
        if self._heals > RECORD_HEALS_MAX:
            # By digest it does not come to rest: from nothing.
            self.rows.clear()
            self._digest = RowDigest(self.salt)
        return [Drifted(own, event.digest), *self._subscribe()]

    # --- rows -------------------------------------------------------------------------------------

    def _put(self, key: Key, seq: int, row: bytes) -> None:
        before = self.rows.get(key)
        # Membership decides before XOR does: what comes twice is there once.
        if before is not None:
            self._digest.leave(key, before[0])
        # In the order of arrival, not of seqs: commits have another one.
        self.rows[key] = (seq, row)
        self._digest.enter(key, seq)
        if self._unseen is not None:
            self._unseen.discard(key)

    def _remove(self, key: Key, *, is_seen: bool = False) -> None:
        before = self.rows.pop(key, None)
        if before is not None:
            self._digest.leave(key, before[0])
        if self._unseen is not None and not is_seen:
            self._unseen.discard(key)

    def remove(self, keys: list[Key]) -> None:
        """What the node lacks, as a reconciliation found."""
        for key in keys:
            self._remove(key)

    def _versions(self) -> Iterator[tuple[Key, int]]:
        return ((key, seq) for key, (seq, _) in self.rows.items())

    def frozen(self) -> "CopySet":
        return CopySet(self.salt, {key: seq for key, (seq, _) in self.rows.items()})

    # --- what always holds ------------------------------------------------------------------------

    def invariants(self) -> None:
        assert self.digest() == digest_of_rows(self.salt, self._versions()), "CO1: the digest"
        is_open = self.state is Copying.SYNCING and self._how not in (How.LIVE, How.REPLAY)
        assert not (is_open and self.cursor), "CO2: a cursor of other rows"


class CopySet(IdSet):
    """The hashes of a copy at one moment, and whose they are."""

    def __init__(self, salt: int, versions: Mapping[Key, int]) -> None:
        self._keys = list(versions)
        words = row_hashes(salt, versions.items())
        super().__init__(words[:, 0], words[:, 1])

    def having(self, highs: Words) -> list[Key]:
        """The keys of the rows with these high halves of their hashes."""
        places = np.flatnonzero(np.isin(self.high, highs))
        return [self._keys[place] for place in self.order[places].tolist()]


class CopyRepairer:
    """What a difference leads to where the node is the authority (net/reconcile.py performs it).

    What the node lacks is removed here, and what it has besides is fetched: its records come before `fetch`
    returns. An updated row is both.
    """

    def __init__(self, copy: Copy, fetch: Callable[[list[Prefix]], Awaitable[None]]) -> None:
        self._copy = copy
        self._fetch = fetch

    async def own_set(self) -> CopySet:
        return self._copy.frozen()

    async def repair(self, own: CopySet, missing: Words, extra: list[Prefix]) -> Digest | None:
        # Removed first: a row that was updated is lacking in its old version, and comes in its new one.
        self._copy.remove(own.having(missing))
        if extra:
            await self._fetch(extra)
        return None
