"""Room: core/records. Audiences: equal subscriptions as one, and the index by which a change finds them.

    index = Audiences(table)
    audience = index.join(filter, permit)        the same one for equal filters, columns and permits
    index.touched(change)                        those that it may be for, by its scopes before and after
    audience.outcome(change)                     RECORD, DELETION or NOTHING

An audience is indexed under each value of the equality that has the fewest: of its filter, or of its
owners. A change looks up the values that its row had and has, so audiences that cannot match are not
tried, however many there are. Those without any equality are the rest, and are tried by every change.

Invariant, looked at by `check`:

    AU1  every audience is found under each value of its equality, or in the rest, and nowhere else
"""

from collections.abc import Iterator
from enum import Enum

from moorline.core.records.filter import Filter
from moorline.core.records.permit import Permit
from moorline.core.records.row_hash import RowDigest
from moorline.core.records.table import Change, Scopes, ScopeValue, Table
from moorline.core.sets.digest import Digest

Identity = tuple[bytes, bytes]
"""Hashes of filter (with its columns) and permit: what makes subscriptions of a table equal."""


class Outcome(Enum):
    RECORD = "record"
    DELETION = "deletion"
    NOTHING = "nothing"


class Audience:
    """Equal subscriptions. Its digest is that of its rows at the feed's step, where it is known."""

    __slots__ = (
        "_digest",
        "_has_owner",
        "_pending",
        "filter",
        "is_proven",
        "members",
        "number",
        "permit",
    )

    def __init__(self, number: int, filter_: Filter, permit: Permit, *, has_owner: bool) -> None:
        self.number = number
        self.filter = filter_
        self.permit = permit
        self.members: set[int] = set()
        self.is_proven = False
        """Its digest comes from a scan, and not from what a cursor said."""
        self._has_owner = has_owner
        self._digest: RowDigest | None = None
        self._pending: RowDigest | None = None
        """As it will be at the end of the step that is being read: a step that fails leaves nothing."""

    @property
    def identity(self) -> Identity:
        return self.filter.hash, self.permit.hash

    def sees(self, scopes: Scopes) -> bool:
        owner = scopes[0] if self._has_owner else None
        return self.permit.matches(owner) and self.filter.matches(scopes)

    def was_and_is(self, change: Change) -> tuple[bool, bool]:
        was = change.before is not None and self.sees(change.before.scopes)
        return was, change.after is not None and self.sees(change.after.scopes)

    def outcome(self, change: Change) -> Outcome:
        was, is_in = self.was_and_is(change)
        if is_in:
            return Outcome.RECORD
        # Gone, not to be seen any more, or not within the filter: nobody can tell which.
        return Outcome.DELETION if was else Outcome.NOTHING

    # --- its digest (RF4) -------------------------------------------------------------------------

    def digest(self) -> Digest | None:
        return None if self._digest is None else self._digest.digest()

    def prove(self, digest: Digest, salt: int, *, is_proven: bool) -> None:
        """Its digest at the feed's step, from a scan; or from a cursor, where no scan has told it."""
        if is_proven or not self.is_proven or self._digest is None:
            self._digest = RowDigest(salt, digest)
            self._pending = None
            self.is_proven = is_proven

    def forget_digest(self) -> None:
        self._digest = self._pending = None
        self.is_proven = False

    def roll(self, change: Change) -> Outcome:
        """What a change of the step under way is for it; its digest follows at the end of the step."""
        was, is_in = self.was_and_is(change)
        if (was or is_in) and self._digest is not None:
            if self._pending is None:
                self._pending = RowDigest(self._digest.salt, self._digest.digest())
            self._pending.roll(change, was_in=was, is_in=is_in)
        return Outcome.RECORD if is_in else Outcome.DELETION if was else Outcome.NOTHING

    def settle(self, *, has_failed: bool = False) -> None:
        """The step has ended."""
        if self._pending is not None and not has_failed:
            self._digest = self._pending
            if not self._digest.is_sound:
                self.forget_digest()
        self._pending = None


class Audiences:
    """All of a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._by_identity: dict[Identity, Audience] = {}
        self._by_number: dict[int, Audience] = {}
        self._index: dict[int, dict[ScopeValue, dict[int, Audience]]] = {}
        """Place of a scope column, value, audiences."""
        self._rest: dict[int, Audience] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Audience]:
        return iter(self._by_number.values())

    def __contains__(self, number: object) -> bool:
        return number in self._by_number

    def __getitem__(self, number: int) -> Audience:
        return self._by_number[number]

    def join(self, filter_: Filter, permit: Permit) -> Audience:
        found = self._by_identity.get((filter_.hash, permit.hash))
        if found is None:
            self._last += 1
            found = Audience(self._last, filter_, permit, has_owner=self._table.has_owner)
            self._by_identity[found.identity] = self._by_number[found.number] = found
            for shelf in self._shelves(found, make=True):
                shelf[found.number] = found
        return found

    def leave(self, audience: Audience) -> None:
        """The last one of it has gone."""
        assert not audience.members, "somebody is still there"
        del self._by_identity[audience.identity], self._by_number[audience.number]
        for shelf in self._shelves(audience, make=False):
            del shelf[audience.number]
        equality = self._equality(audience)
        if equality is None:
            return
        place, values = equality
        at = self._index.get(place, {})
        for value in values:
            # Or a table whose filters change for years would grow.
            if value in at and not at[value]:
                del at[value]
        if not at:
            self._index.pop(place, None)

    def touched(self, change: Change) -> Iterator[Audience]:
        """Those that a change may be for, each once."""
        found: dict[int, Audience] = {}
        before = None if change.before is None else change.before.scopes
        after = None if change.after is None else change.after.scopes
        for place, by_value in self._index.items():
            if before is not None:
                found.update(by_value.get(before[place], _NONE))
            if after is not None and (before is None or before[place] != after[place]):
                found.update(by_value.get(after[place], _NONE))
        yield from found.values()
        yield from self._rest.values()

    def check(self) -> None:
        shelves = [shelf for by_value in self._index.values() for shelf in by_value.values()]
        assert all(shelves), "AU1: an empty shelf"
        places = sum(len(shelf) for shelf in shelves) + len(self._rest)
        wanted = 0
        for audience in self:
            assert self._by_identity[audience.identity] is audience, "AU1: of another identity"
            for shelf in self._shelves(audience, make=False):
                assert shelf.get(audience.number) is audience, f"AU1: {audience.number} is lost"
                wanted += 1
        assert places == wanted, f"AU1: {places} places for {wanted}"

    def _equality(self, audience: Audience) -> tuple[int, frozenset[ScopeValue]] | None:
        term, permit = audience.filter.equality(), audience.permit
        by_owner = self._table.has_owner and not permit.is_all
        if by_owner and (term is None or len(permit.owners) < len(term.values)):
            return 0, permit.owners
        return None if term is None else (term.place, term.values)

    def _shelves(self, audience: Audience, *, make: bool) -> list[dict[int, Audience]]:
        equality = self._equality(audience)
        if equality is None:
            return [self._rest]
        place, values = equality
        if make:
            by_value = self._index.setdefault(place, {}) if values else {}
            return [by_value.setdefault(value, {}) for value in values]
        return [self._index.get(place, {}).get(value, {}) for value in values]


_NONE: dict[int, Audience] = {}
