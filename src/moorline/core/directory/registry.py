"""Room: core/directory. The directory of one resolver: who publishes what, who is alive, who is found.

    login = registry.begin()                                        a login has come, and is being proven
    registration = registry.open(login, claim, secret, salt, now_ms)       its address is
    registry.publish(registration, entries, now_ms)                 which paths are new, for those who watch
    registry.tick(now_ms)                                           who was not heard of for too long is gone
    for changed in registry.purging(): ...                          entries of those leave, step by step

    (login) ─ proven ─► PROVEN ─ silent, closed, another has its address ─► GONE ─ purged ─► (forgotten)

A registration is known by its principal, its instance and its address: whoever comes back with all three goes
on with its entries, under a new secret. Of two logins the one counts that came last, whichever is proven
first: a publisher that has given one up and begun another knows the secret of the second. What a GONE one has
is found by nobody from that moment on; that it also leaves the memory takes a while where it is a million
paths.

Invariants:
D1  a path is in the tree exactly if a registration has an entry for it that is PROVEN, or GONE and not purged
D2  the digest of a registration is that of its entries, found anew
D3  behind a tick, no PROVEN registration was silent for more than the ttl
D4  what is found is of PROVEN registrations alone
D5  no two PROVEN registrations have the same address
D6  before `ready_at_ms` nothing is "not found"
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from moorline.core.directory.entry_set import Entry, EntrySet
from moorline.core.directory.path import DEFAULT, entry_id
from moorline.core.directory.tree import Holders, Tree
from moorline.core.hidden_bytes import without_bytes
from moorline.core.sets.digest import Digest
from moorline.limits import ENTRIES_PURGED_AT_ONCE, RESOLVER_TICKS_PER_TTL


class RegistrationState(Enum):
    PROVEN = "proven"
    GONE = "gone"


class Claim(NamedTuple):
    """What a publisher says of itself at a login; its principal is what it proved."""

    principal: str
    instance: bytes
    address: str
    mechanisms: tuple[str, ...] = ()
    priority: int = 1
    service: str = ""
    whose: str = ""
    """By whom it is counted: its principal, or where a stranger comes from."""
    proof: str = ""
    """How it proved itself at its last login; with the next two all that its rights depend on."""
    is_local: bool = False
    mark: bytes = b""
    """Which password or token that was."""

    @property
    def key(self) -> tuple[str, bytes, str]:
        return self.principal, self.instance, self.address


class Registration:
    """What a resolver knows of one publisher."""

    __slots__ = ("claim", "entries", "heard_ms", "login", "number", "secret", "state")

    def __init__(
        self, number: int, login: int, claim: Claim, secret: bytes, salt: bytes, now_ms: int
    ) -> None:
        self.number = number
        self.login = login
        """The number of the last one."""
        self.claim = claim
        self.secret = secret
        """Of the last login."""
        self.state = RegistrationState.PROVEN
        self.heard_ms = now_ms
        self.entries = EntrySet(salt)

    __repr__ = without_bytes

    @property
    def is_found(self) -> bool:
        return self.state is RegistrationState.PROVEN

    def digest(self) -> Digest:
        return self.entries.digest()


CLUSTER: Final = 0
"""The number of what the cluster itself publishes: its nodes, homes and shards. It is always found."""


class Changed(NamedTuple):
    """Paths that are published from now on, and that are no longer."""

    added: list[str]
    removed: list[str]


class Registry:
    """The machine. It knows no clock and draws nothing."""

    def __init__(self, *, ttl_ms: int, ready_at_ms: int) -> None:
        self.tree = Tree()
        self.ttl_ms = ttl_ms
        self.ready_at_ms = ready_at_ms
        self.purged = 0
        """Registrations that went because nothing was heard of them."""
        self._registrations: dict[int, Registration] = {}
        """PROVEN ones, by their numbers."""
        self._by_key: dict[tuple[str, bytes, str], Registration] = {}
        self._by_address: dict[str, Registration] = {}
        self._leaving: dict[int, Registration] = {}
        """GONE ones, whose entries are yet to leave the tree."""
        self.entry_count = 0
        """Of all registrations, those included that are gone and not purged: what is kept in memory."""
        self._by_whose: Counter[str] = Counter()
        """How many PROVEN ones each has."""
        self._entries_by_whose: Counter[str] = Counter()
        """Entries of those. Who comes back while what it had is purged does not have it twice."""
        self._cluster: set[str] = set()
        self._next_number = CLUSTER + 1
        self._logins = 0

    def __len__(self) -> int:
        return len(self._registrations)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registrations.values())

    def count_of(self, whose: str) -> int:
        return self._by_whose[whose]

    def entries_of(self, whose: str) -> int:
        return self._entries_by_whose[whose]

    def entries_of_strangers(self, name: str) -> int:
        """Of all who are called so, wherever they come from (resolver/whose.py)."""
        return sum(
            count
            for whose, count in self._entries_by_whose.items()
            if whose == name or whose.startswith(f"{name} at ")
        )

    def has_place_for(self, claim: Claim) -> bool:
        """Whether a login makes no registration more: it is known, or takes the place of another one."""
        return claim.key in self._by_key or claim.address in self._by_address

    def is_known(self, claim: Claim) -> bool:
        return claim.key in self._by_key

    def is_ready(self, now_ms: int) -> bool:
        return now_ms >= self.ready_at_ms

    @property
    def tick_ms(self) -> int:
        return max(1, self.ttl_ms // RESOLVER_TICKS_PER_TTL)

    @property
    def has_leaving(self) -> bool:
        return bool(self._leaving)

    # --- logins -----------------------------------------------------------------------------------

    def begin(self) -> int:
        """The number of a login that has come: those that come later have greater ones."""
        self._logins += 1
        return self._logins

    def is_overtaken(self, login: int, claim: Claim) -> bool:
        """Whether a later login of the same publisher, or of another one at its address, is open already."""
        known = self._by_key.get(claim.key) or self._by_address.get(claim.address)
        return known is not None and known.login > login

    def open(
        self, login: int, claim: Claim, secret: bytes, salt: bytes, now_ms: int
    ) -> Registration:
        """A login, whose address has answered. One that is known goes on with its entries."""
        assert not self.is_overtaken(login, claim), (
            "the secret that counts is that of a later login"
        )
        known = self._by_key.get(claim.key)
        if known is not None:
            self._count(known.claim.whose, -1)
            self._count(claim.whose, 1)
            self._count_entries(known.claim.whose, -len(known.entries))
            self._count_entries(claim.whose, len(known.entries))
            known.login, known.claim, known.secret = login, claim, secret
            self.heard(known, now_ms)
            return known
        other = self._by_address.get(claim.address)
        if other is not None:
            # Whoever listens there now is not the one that did before.
            self._end(other)
        number = self._next_number
        self._next_number += 1
        made = Registration(number, login, claim, secret, salt, now_ms)
        self._registrations[number] = self._by_key[claim.key] = made
        self._by_address[claim.address] = made
        self._count(claim.whose, 1)
        return made

    def heard(self, registration: Registration, now_ms: int) -> None:
        """Any message of a registration proves that it lives."""
        registration.heard_ms = max(registration.heard_ms, now_ms)

    def slept(self, slept_ms: int, now_ms: int) -> None:
        """The resolver itself stood still for that time and could hear nobody: nobody is silent by that.

        Who was heard of since gets no more than now: what had waited in a socket is read before the clock.
        """
        for one in self._registrations.values():
            one.heard_ms = max(one.heard_ms, min(one.heard_ms + slept_ms, now_ms))

    def close(self, registration: Registration) -> None:
        """The publisher is done."""
        if registration.state is not RegistrationState.GONE:
            self._end(registration)

    def tick(self, now_ms: int) -> list[Registration]:
        """Those that were not heard of for the ttl, and are gone now."""
        silent = [
            one for one in self._registrations.values() if now_ms - one.heard_ms > self.ttl_ms
        ]
        for one in silent:
            self._end(one)
        self.purged += len(silent)
        return silent

    def _end(self, registration: Registration) -> None:
        registration.state = RegistrationState.GONE
        claim = registration.claim
        del self._registrations[registration.number]
        del self._by_key[claim.key]
        del self._by_address[claim.address]
        self._count(claim.whose, -1)
        self._count_entries(claim.whose, -len(registration.entries))
        registration.entries.forget_sums()
        if len(registration.entries):
            self._leaving[registration.number] = registration

    def _count(self, whose: str, change: int) -> None:
        self._by_whose[whose] += change
        if not self._by_whose[whose]:
            del self._by_whose[whose]

    def _count_entries(self, whose: str, change: int) -> None:
        if change:
            self._entries_by_whose[whose] += change
            if not self._entries_by_whose[whose]:
                del self._entries_by_whose[whose]

    # --- entries ----------------------------------------------------------------------------------

    def publish(self, registration: Registration, entries: Iterable[Entry], now_ms: int) -> Changed:
        """Entries come, or get other flags."""
        assert registration.is_found, "who is gone publishes nothing"
        self.heard(registration, now_ms)
        before = len(registration.entries)
        changed, _ = registration.entries.change(entries, ())
        self.entry_count += len(registration.entries) - before
        self._count_entries(registration.claim.whose, len(registration.entries) - before)
        number, tree = registration.number, self.tree
        return Changed([path for path, flags in changed if tree.put(path, number, flags)], [])

    def unpublish(self, registration: Registration, paths: Iterable[str], now_ms: int) -> Changed:
        assert registration.is_found, "who is gone publishes nothing"
        self.heard(registration, now_ms)
        return self.take_away(registration, paths)

    def take_away(self, registration: Registration, paths: Iterable[str]) -> Changed:
        """What a publisher may not publish any more: it has said nothing, and does not live by that."""
        assert registration.is_found, "who is gone has nothing"
        _, gone = registration.entries.change((), paths)
        self.entry_count -= len(gone)
        self._count_entries(registration.claim.whose, -len(gone))
        number, tree = registration.number, self.tree
        return Changed([], [path for path in gone if tree.remove(path, number)])

    def put_cluster(self, paths: Collection[str]) -> Changed:
        """What the cluster publishes of itself is this from now on."""
        added = [path for path in paths if path not in self._cluster]
        removed = [path for path in self._cluster if path not in paths]
        self._cluster = set(paths)
        for path in added:
            self.tree.put(path, CLUSTER, 0)
        for path in removed:
            self.tree.remove(path, CLUSTER)
        return Changed(added, removed)

    def purging(self) -> Generator[Changed]:
        """Takes the entries of those that are gone out of the tree; may be interrupted at each yield."""
        while self._leaving:
            number, registration = next(iter(self._leaving.items()))
            taken = registration.entries.take(ENTRIES_PURGED_AT_ONCE)
            if not taken:
                del self._leaving[number]
                continue
            self.entry_count -= len(taken)
            yield Changed([], [path for path in taken if self.tree.remove(path, number)])

    # --- questions --------------------------------------------------------------------------------

    def find(self, path: str) -> tuple[list[Registration], int]:
        """Who publishes it, or else who makes it on demand; and their flags together."""
        holders = self.tree.find(path)
        if holders is not None:
            found, flags = self._found(holders, 0)
            if found:
                return found, flags
        for above in self.tree.defaults(path):
            found, flags = self._found(above, DEFAULT)
            if found:
                return found, flags
        return [], 0

    def found_of(self, holders: Holders) -> tuple[list[Registration], int]:
        """Those of the holders that are found, and their flags together."""
        return self._found(holders, 0)

    def _found(self, holders: Holders, wanted: int) -> tuple[list[Registration], int]:
        found: list[Registration] = []
        together = 0
        for number, flags in holders.held:
            one = self._registrations.get(number)
            if one is not None and one.is_found and flags & wanted == wanted:
                found.append(one)
                together |= flags
        return found, together

    def is_published(self, path: str) -> bool:
        holders = self.tree.find(path)
        return holders is not None and self.is_any_found(holders)

    def is_any_found(self, holders: Holders) -> bool:
        if not self._leaving:
            return True
        registrations = self._registrations
        return any(number in registrations or number == CLUSTER for number, _ in holders.held)

    # --- invariants -------------------------------------------------------------------------------

    def check(self, now_ms: int, ticked_ms: int) -> None:
        """Asserts D1 to D5; D6 is what `is_ready` is asked for. Looks at everything."""
        self.tree.invariants()
        wanted = {path: {(CLUSTER, 0)} for path in self._cluster}
        for one in (*self._registrations.values(), *self._leaving.values()):
            for path, flags in one.entries.items():
                wanted.setdefault(path, set()).add((one.number, flags))
        had = {path: set(self._held(path)) for path in self.tree}
        assert had == wanted, "D1: the tree is not what the registrations have"
        for one in self._registrations.values():
            anew = Digest.of(entry_id(path, flags) for path, flags in one.entries.items())
            assert one.digest() == anew, f"D2: the digest of {one.number}"
            assert ticked_ms - one.heard_ms <= self.ttl_ms, f"D3: {one.number} is silent"
            assert one.is_found, f"D4: {one.number} is found and gone"
            assert self._by_key[one.claim.key] is one, f"{one.number} is not known by its key"
        for path in self.tree:
            assert all(one.is_found for one in self.find(path)[0]), f"D4: {path} is found and gone"
        addresses = [one.claim.address for one in self._registrations.values()]
        assert len(addresses) == len(set(addresses)), "D5: an address is of two"
        counted = Counter(one.claim.whose for one in self._registrations.values())
        everybody = (*self._registrations.values(), *self._leaving.values())
        assert self.entry_count == sum(len(one.entries) for one in everybody), (
            "entries are counted wrongly"
        )
        assert self._by_whose == counted, "registrations are counted wrongly"
        entries: Counter[str] = Counter()
        for one in self._registrations.values():
            entries[one.claim.whose] += len(one.entries)
        assert self._entries_by_whose == +entries, "entries of somebody are counted wrongly"
        assert ticked_ms <= now_ms

    def _held(self, path: str) -> Sequence[tuple[int, int]]:
        holders = self.tree.find(path)
        assert holders is not None
        return holders.held
