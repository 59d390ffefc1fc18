"""Room: core/sets. Reconciliation: two sets are made equal at a cost in proportion to their difference.

The side that repairs is the *asker*; the other one is the *answerer*. Neither knows what the ids are of:
queues of a service, paths of a publisher, records with their numbers. In steps, each only if the one before
it was not enough:

    1  verify   digests are equal: done, 48 bytes
    2  sketch   in the same reply; the asker subtracts its own and peels
    3  ranges   digests of hash prefixes, level by level, down to short lists
    4  list     the whole list, where it is the cheapest
    5  repair   what the other side lacks is added, what it has too much is removed; the answer carries
                its digest again and must be equal

The asker is a machine: net/reconcile.py performs what it asks, over whatever wire there is. The answerer
keeps no state: core/sets/answerer.py. Design: docs/design/reconciliation.md.

Invariants, looked at by `check`:

    Z1  our own set is the one that was asked about: another one would be repaired towards what it is no more
    Z2  there are TRIES_MAX exchanges at most, and one more only to give up
    Z3  no two of the ranges that are asked or to be listed overlap: an id would be repaired twice
    Z4  a walk has ranges to ask for, and a listing has lists
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np

from moorline.core.effects import Effect, Event
from moorline.core.machine import Machine
from moorline.core.sets.digest import Digest
from moorline.core.sets.estimate import Estimate
from moorline.core.sets.prefix import ALL, HASH_BITS, Prefix, RangeDigest
from moorline.core.sets.sketch import CELL_BYTES, PARTITIONS, Salt, Sketch, Words
from moorline.errors import Malformed
from moorline.limits import WALKED_RANGES_MAX

LISTED_BYTES = 8
"""Bytes of an id in a list: the high half of its hash."""

RANGE_BYTES = 12
"""Bytes of a range digest, about."""

FIRST_BITS = 8
"""The first level of ranges: the 256 buckets that are kept anyway."""

# Sixteen children: half as many would cost more round trips, twice as many more bytes where one id differs.
CHILD_BITS = 4
LEAF_COUNT = 16 * RANGE_BYTES // LISTED_BYTES
"""A range of so many ids or fewer is cheaper to list than to divide once more."""

DEEPEST_BITS = HASH_BITS - CHILD_BITS
"""The children of such a range would be single hashes, which a list names as well."""

TRIES_MAX = 6
"""Exchanges before a reconciliation is given up; a set that changes all the time cannot be proven."""


class Mode(Enum):
    """What came along with a digest; the numbers are those on the wire."""

    EQUAL = 0
    EMPTY = 1
    SURPLUS = 2
    SKETCH = 3
    LIST = 4


class OwnSet(Protocol):
    """What the asker must know of its own set, which does not change while it is at work (`IdSet` is one).

    Hashes go by their high halves: 64 bits name an id, and the digest has the other 64.
    """

    def digest(self) -> Digest: ...

    def ranges(self, prefixes: Sequence[Prefix]) -> list[RangeDigest]: ...

    def sketch(self, salt: Salt, cells: int) -> Sketch: ...

    def highs(self, prefix: Prefix) -> Words: ...

    def estimate(self, salt: Salt) -> Estimate:
        """Goes along with a question, for the answerer to choose the size of its sketch by."""

    def of_shorts(self, shorts: Words) -> tuple[Words, Words]:
        """The hashes with these short ids; and the short ids of no hash."""


class Answered(Event, frozen=True):
    """The answer to `AskVerify`: the other side's digest, and what came with it."""

    digest: Digest
    mode: Mode
    cells: int = 0
    payload: bytes = b""


class RangesAnswered(Event, frozen=True):
    """The answer to `AskRanges`, in the same order."""

    ranges: list[RangeDigest]


class ListsAnswered(Event, frozen=True):
    """The answer to `AskLists`: the high halves of the hashes below each prefix, in the same order."""

    highs: list[Words]


class Repaired(Event, frozen=True):
    """The repair is done; the other side's digest after it."""

    digest: Digest


class Begin(Event, frozen=True):
    pass


class AskVerify(Effect, frozen=True):
    """Our digest (SUBS of a service), and the least size of sketch that is of use."""

    digest: Digest
    cells_min: int


class AskRanges(Effect, frozen=True):
    prefixes: list[Prefix]


class AskLists(Effect, frozen=True):
    prefixes: list[Prefix]


class Repair(Effect, frozen=True):
    """They lack `missing`, hashes of ours, and have `extra`, prefixes of hashes that we do not have."""

    missing: Words
    extra: list[Prefix]


class Agreed(Effect, frozen=True):
    """Both sides hold the same set, proven by the digest."""

    digest: Digest


class GiveUp(Effect, frozen=True):
    why: str


class Asking(Enum):
    IDLE = "idle"
    VERIFYING = "verifying"
    WALKING = "walking"
    LISTING = "listing"
    REPAIRING = "repairing"
    AGREED = "agreed"
    GIVEN_UP = "given up"


class Asker(Machine[Asking]):
    """The side that repairs. Its own set does not change while it is at work."""

    # Back to VERIFYING from everywhere: whatever was found, only an equal digest is a proof, and it may
    # have been found in a set that has changed since.
    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        Asking.IDLE: frozenset({Asking.VERIFYING}),
        Asking.VERIFYING: frozenset(
            {Asking.WALKING, Asking.REPAIRING, Asking.AGREED, Asking.GIVEN_UP}
        ),
        Asking.WALKING: frozenset(
            {Asking.LISTING, Asking.REPAIRING, Asking.VERIFYING, Asking.GIVEN_UP}
        ),
        Asking.LISTING: frozenset({Asking.REPAIRING, Asking.VERIFYING, Asking.GIVEN_UP}),
        Asking.REPAIRING: frozenset({Asking.VERIFYING, Asking.AGREED, Asking.GIVEN_UP}),
    }

    def __init__(self, name: str, own: OwnSet, salt: Salt) -> None:
        super().__init__(name, Asking.IDLE)
        self._own = own
        self._salt = salt
        # Once: the set does not change, and over a million ids each time would cost as much as the sketch.
        self._digest = own.digest()
        self._cells_min = 0
        self._tries = 0
        self._sketch_failed = 0
        self._repairs = 0
        self._asked: list[Prefix] = []
        self._leaves: list[Prefix] = []

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event, self.state:
            case Begin(), Asking.IDLE:
                return self._verify()
            case Answered(), Asking.VERIFYING:
                return self._answered(event)
            case RangesAnswered(ranges), Asking.WALKING:
                return self._walk(ranges)
            case ListsAnswered(highs), Asking.LISTING:
                return self._listed(highs)
            case Repaired(digest), Asking.REPAIRING:
                # Said by the other side of all that it has, not concluded from what was sent: a repair may
                # be lost in part, and others change the set too.
                if digest == self._digest:
                    self.move(Asking.AGREED)
                    return [Agreed(digest)]
                self._repairs += 1
                return self._verify()
            case _:
                raise AssertionError(f"{event} is out of place in {self.state.name}")

    def _verify(self) -> list[Effect]:
        # Counted here, where every way round comes by: without a bound a set that changes faster than it is
        # compared would keep both sides at work for ever.
        self._tries += 1
        if self._tries > TRIES_MAX:
            self.move(Asking.GIVEN_UP)
            return [
                GiveUp(f"no agreement after {TRIES_MAX} tries; does the set change all the time?")
            ]
        self.move(Asking.VERIFYING)
        return [AskVerify(self._digest, self._cells_min)]

    def _answered(self, answer: Answered) -> list[Effect]:
        match answer.mode:
            case Mode.EQUAL:
                # "Nothing to go with it", which a store without sketches says too: the digests decide.
                if answer.digest != self._digest:
                    return self._begin_walk()
                self.move(Asking.AGREED)
                return [Agreed(answer.digest)]
            case Mode.EMPTY:
                # Nothing has to travel to us: all of ours is missing there.
                return self._repair(self._own.highs(ALL), [])
            case Mode.SURPLUS:
                # And here all of theirs is too much, whatever it is: one prefix says so.
                return self._repair(np.empty(0, np.uint64), [ALL])
            case Mode.SKETCH:
                return self._decode(answer)
            case Mode.LIST:
                return self._compare([ALL], [words_of(answer.payload)])

    def _decode(self, answer: Answered) -> list[Effect]:
        if self._repairs > 1:
            # What the sketch shows does not help: two ids may be equal in the bits that it sees.
            return self._begin_walk()
        # Of the size that they chose, not that we asked for: only equal sizes can be subtracted.
        theirs = Sketch.parse(self._salt, answer.cells, answer.payload)
        shorts = self._own.sketch(self._salt, answer.cells).difference(theirs)
        if shorts is None:
            # The estimate was too low, or chance was against us: once more with twice the size.
            self._sketch_failed += 1
            if self._sketch_failed > 1:
                return self._begin_walk()
            self._cells_min = 2 * answer.cells
            return self._verify()
        # The sign of a difference is not in a sketch: what is ours is what they lack, the rest is theirs.
        # Both of two ids with one short id count as missing; to add one that is there already changes
        # nothing.
        missing, unknown = self._own.of_shorts(shorts)
        return self._repair(missing, [Prefix(48, int(short)) for short in unknown])

    # --- ranges -----------------------------------------------------------------------------------

    def _begin_walk(self) -> list[Effect]:
        self.move(Asking.WALKING)
        # From the start: what an earlier walk found was of another moment.
        self._leaves = []
        self._asked = ALL.children(FIRST_BITS)
        return [AskRanges(self._asked)]

    def _walk(self, ranges: list[RangeDigest]) -> list[Effect]:
        assert len(ranges) == len(self._asked), "an answer for every range"
        below: list[Prefix] = []
        for prefix, theirs, ours in zip(
            self._asked, ranges, self._own.ranges(self._asked), strict=True
        ):
            if theirs == ours:
                continue
            # By their count, not by ours: the list that would travel is theirs. No deeper than the bits of a
            # hash, and no wider than the bound: whoever says that every range holds a million would have us
            # keep sixteen times as many ranges after each answer.
            is_wide = len(below) >= WALKED_RANGES_MAX
            if theirs.count <= LEAF_COUNT or prefix.bits >= DEEPEST_BITS or is_wide:
                self._leaves.append(prefix)
            else:
                below += prefix.children(CHILD_BITS)
        # All levels before the first list, so that all lists are asked for in one go.
        if below:
            self._asked = below
            return [AskRanges(below)]
        # Nothing differs any more: the set changed under the walk, or the digest did in between.
        if not self._leaves:
            return self._verify()
        self.move(Asking.LISTING)
        return [AskLists(self._leaves)]

    def _listed(self, highs: list[Words]) -> list[Effect]:
        assert len(highs) == len(self._leaves), "an answer for every list"
        return self._compare(self._leaves, highs)

    def _compare(self, prefixes: list[Prefix], highs: list[Words]) -> list[Effect]:
        missing: list[Words] = []
        extra: list[Prefix] = []
        for prefix, theirs in zip(prefixes, highs, strict=True):
            # Only what is below this prefix: of the rest of our set the list says nothing.
            own = self._own.highs(prefix)
            missing.append(own[~np.isin(own, theirs)])
            extra += [Prefix(64, int(high)) for high in theirs[~np.isin(theirs, own)]]
        return self._repair(np.concatenate(missing), extra)

    def _repair(self, missing: Words, extra: list[Prefix]) -> list[Effect]:
        if not len(missing) and not extra:
            # Equal as far as this view goes, but not by digest: look closer.
            if self.state is Asking.VERIFYING:
                return self._begin_walk()
            return self._verify()
        self.move(Asking.REPAIRING)
        return [Repair(missing, extra)]

    # --- what always holds ------------------------------------------------------------------------

    def invariants(self) -> None:
        assert self._own.digest() == self._digest, "Z1: our own set has changed"
        is_last = self._tries == TRIES_MAX + 1 and self.state is Asking.GIVEN_UP
        assert self._tries <= TRIES_MAX or is_last, f"Z2: try {self._tries}"
        if self.state is Asking.WALKING:
            assert self._asked, "Z4: a walk over nothing"
            self._check_apart([*self._asked, *self._leaves])
        if self.state is Asking.LISTING:
            assert self._leaves, "Z4: no list is asked for"
            self._check_apart(self._leaves)

    def _check_apart(self, prefixes: list[Prefix]) -> None:
        for before, after in pairwise(sorted(prefixes, key=lambda one: one.first)):
            assert before.last < after.first, f"Z3: {before} and {after} overlap"


def check_answer(mode: Mode, cells: int, payload_bytes: int) -> None:
    """What the other side says is checked before we rely on it."""
    # Here, before numpy would fail over it in a way that looks like a mistake of ours.
    is_sketch = cells > 0 and payload_bytes == sketch_bytes(cells)
    is_list = payload_bytes % LISTED_BYTES == 0
    fits = {Mode.SKETCH: is_sketch, Mode.LIST: is_list}.get(mode, payload_bytes == 0)
    if not fits:
        raise Malformed(f"an answer of mode {mode.name} with {payload_bytes} bytes")


def sketch_bytes(cells: int) -> int:
    return PARTITIONS * cells * CELL_BYTES


def words_of(listed: bytes) -> Words:
    """The hashes of a list, as they travel: eight bytes each."""
    return np.frombuffer(listed, ">u8").astype(np.uint64)


def listed_of(high: Words) -> bytes:
    """The inverse of `words_of`."""
    return high.astype(">u8").tobytes()
