"""Room: core/access. Who guessed wrong how often, and how long it must wait.

    ask(name, address) ──► Attempt ──► settle: right, wrong, or nobody could say
                      └──► Wait: nothing is looked at, the right password neither

Every guess counts when it is made, and is taken back if it was right: a thousand guesses at the same time
are a thousand, although none of them is answered yet. A count goes down by itself, one by one.

A name that somebody else attacks must not be shut out. So an address from which a name has come with the
right password is known for it. From there neither the waits of the name nor those of the address count, but
only wrong guesses of that very name from that very address.

The tables are bounded. If the oldest entry made room, whoever can invent names would flush the entry of the
one that it attacks. So the least guilty goes: to push out a name with ten wrong guesses an attacker has to
bring most of a table to ten, and each of those guesses counts against the address that it comes from. What
holds the known addresses holds only names that gave the right password, so nobody can push out another.

Invariants, looked at by `check`:

    TH1  no table is longer than its bound, whoever comes under however many names and addresses
    TH2  a level is between nothing and what makes the longest wait
    TH3  each known address has a meter and a time
"""

from collections import OrderedDict
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

from moorline import limits


class Outcome(Enum):
    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """It could not be checked: nobody is to blame."""


class Wait(msgspec.Struct, frozen=True):
    """Too many wrong guesses: come again in that time."""

    wait_ms: int


class Attempt(msgspec.Struct, frozen=True):
    """A guess that may be checked; `settle` hears what became of it, once."""

    name: str
    network: str
    is_known: bool
    """The name has come from there before, with the right password."""


class Pace(msgspec.Struct, frozen=True):
    """How many wrong guesses are free, and how soon one is forgotten."""

    free: int
    forgotten_ms: int

    def wait_ms(self, guesses: int) -> int:
        """Behind that many, the last one included."""
        # Some are free: people mistype, and must not wait for it.
        if guesses < self.free:
            return 0
        doublings = min(guesses - self.free, _DOUBLINGS)
        return min(limits.GUESS_WAIT_MS_MIN << doublings, limits.GUESS_WAIT_MS_MAX)

    @property
    def level_ms_max(self) -> int:
        """Guesses beyond the longest wait are not counted: they would only prolong the time to forget."""
        return (self.free + _DOUBLINGS) * self.forgotten_ms


_DOUBLINGS: Final = (limits.GUESS_WAIT_MS_MAX // limits.GUESS_WAIT_MS_MIN).bit_length()

OF_NAMES: Final = Pace(limits.NAME_GUESSES_FREE, limits.NAME_GUESS_FORGOTTEN_MS)
OF_ADDRESSES: Final = Pace(limits.ADDRESS_GUESSES_FREE, limits.ADDRESS_GUESS_FORGOTTEN_MS)


class Meter:
    """The wrong guesses of one name or address. Its level falls with the time, and each guess raises it."""

    __slots__ = ("_at_ms", "_level_ms", "_pace")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._level_ms = 0
        self._at_ms = 0

    def level_ms(self, now_ms: int) -> int:
        return max(0, self._level_ms - (now_ms - self._at_ms))

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next guess is looked at."""
        # From the level as it was at the last guess, not as it is now: a wait that shrank while one waits
        # would be over before its time. Rounded up, so that a part of a guess counts.
        guesses = -(-self._level_ms // self._pace.forgotten_ms)
        return max(0, self._at_ms + self._pace.wait_ms(guesses) - now_ms)

    def guess(self, now_ms: int) -> None:
        # First what time has forgotten, then the new one: the other way round time would forget it at once.
        level_ms = self.level_ms(now_ms) + self._pace.forgotten_ms
        self._level_ms = min(level_ms, self._pace.level_ms_max)
        self._at_ms = now_ms

    def take_back(self) -> None:
        """The last guess was none. What others guessed meanwhile stays."""
        # From the level at the last guess, as `guess` left it: what has passed since then is taken off by
        # whoever asks.
        self._level_ms = max(0, self._level_ms - self._pace.forgotten_ms)

    def check(self) -> None:
        is_within = 0 <= self._level_ms <= self._pace.level_ms_max
        assert is_within, f"TH2: a level of {self._level_ms} ms"


class Meters:
    """A bounded table of them, from which the least guilty go first."""

    def __init__(self, pace: Pace, entries_max: int = limits.THROTTLE_ENTRIES_MAX) -> None:
        assert entries_max >= limits.THROTTLE_DROPPED_DIVISOR, "a full table must lose at least one"
        self._pace = pace
        self._entries_max = entries_max
        self._meters: dict[str, Meter] = {}

    def __len__(self) -> int:
        return len(self._meters)

    def wait_ms(self, key: str, now_ms: int) -> int:
        meter = self._meters.get(key)
        return meter.wait_ms(now_ms) if meter is not None else 0

    def guess(self, key: str, now_ms: int) -> None:
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._entries_max:
                self._drop(now_ms)
            meter = self._meters[key] = Meter(self._pace)
        meter.guess(now_ms)

    def take_back(self, key: str) -> None:
        meter = self._meters.get(key)
        if meter is not None:  # it may have made room for another meanwhile
            meter.take_back()

    def _drop(self, now_ms: int) -> None:
        """The sort keeps the order of those that are equal: among them the oldest go first."""
        by_guilt = sorted(self._meters, key=lambda key: self._meters[key].level_ms(now_ms))
        for key in by_guilt[: len(by_guilt) // limits.THROTTLE_DROPPED_DIVISOR]:
            del self._meters[key]

    def check(self) -> None:
        assert len(self._meters) <= self._entries_max, f"TH1: {len(self._meters)} meters"
        for meter in self._meters.values():
            meter.check()


class _Known:
    """The addresses of one name, the one that came last at the end."""

    __slots__ = ("meters", "seen_ms")

    def __init__(self) -> None:
        self.meters: OrderedDict[str, Meter] = OrderedDict()
        self.seen_ms: dict[str, int] = {}


class Throttle:
    """The wrong guesses of all names and addresses of a node."""

    def __init__(
        self,
        entries_max: int = limits.THROTTLE_ENTRIES_MAX,
        known_names_max: int = limits.THROTTLE_KNOWN_NAMES_MAX,
    ) -> None:
        self._names = Meters(OF_NAMES, entries_max)
        self._networks = Meters(OF_ADDRESSES, entries_max)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._known_names_max = known_names_max

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Names, addresses, and known addresses, that are remembered."""
        return (
            len(self._names),
            len(self._networks),
            sum(len(known.meters) for known in self._known.values()),
        )

    def ask(self, name: str, address: str, now_ms: int) -> Attempt | Wait:
        """Whether that guess is looked at now. If it is, it counts from now on."""
        network = network_of(address)
        # A known address has a meter of its own, and neither asks nor feeds the other two: an attack from
        # elsewhere does not lock its owner out, and the mistakes of the owner tell nothing to an attacker
        # who watches the waits.
        own = self._known_meter(name, network, now_ms)
        if own is not None:
            wait_ms = own.wait_ms(now_ms)
            if wait_ms == 0:
                own.guess(now_ms)
        else:
            # Both are asked before either counts: whoever has to wait has not guessed, or waiting would
            # prolong itself.
            wait_ms = max(
                self._names.wait_ms(name, now_ms), self._networks.wait_ms(network, now_ms)
            )
            if wait_ms == 0:
                self._names.guess(name, now_ms)
                self._networks.guess(network, now_ms)
        if wait_ms > 0:
            return Wait(wait_ms)
        return Attempt(name, network, own is not None)

    def settle(self, attempt: Attempt, outcome: Outcome, now_ms: int) -> None:
        if outcome is Outcome.WRONG:
            return  # it was counted when it was made
        if attempt.is_known:
            known = self._known.get(attempt.name)
            meter = known.meters.get(attempt.network) if known is not None else None
            if meter is not None:
                meter.take_back()
        else:
            self._names.take_back(attempt.name)
            self._networks.take_back(attempt.network)
        # Only the right password makes an address known: a table that guesses could fill would be one to
        # flush.
        if outcome is Outcome.RIGHT:
            self._remember(attempt.name, attempt.network, now_ms)

    def _known_meter(self, name: str, network: str, now_ms: int) -> Meter | None:
        known = self._known.get(name)
        if known is None or network not in known.meters:
            return None
        # Not for ever: the address may be another subscriber's by now.
        if now_ms - known.seen_ms[network] >= limits.THROTTLE_KNOWN_MS:
            return None
        return known.meters[network]

    def _remember(self, name: str, network: str, now_ms: int) -> None:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._known_names_max:
                self._known.popitem(last=False)
            known = self._known[name] = _Known()
        self._known.move_to_end(name)
        # The meter stays, with what was guessed wrong there: to come in once must not clear it.
        known.meters.setdefault(network, Meter(OF_NAMES))
        known.meters.move_to_end(network)
        known.seen_ms[network] = now_ms
        if len(known.meters) > limits.THROTTLE_KNOWN_ADDRESSES_MAX:
            oldest, _ = known.meters.popitem(last=False)
            del known.seen_ms[oldest]

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants."""
        for table in (self._names, self._networks):
            table.check()
        names = len(self._known)
        assert names <= self._known_names_max, f"TH1: {names} names have known addresses"
        for name, known in self._known.items():
            count = len(known.meters)
            assert count <= limits.THROTTLE_KNOWN_ADDRESSES_MAX, f"TH1: {count} addresses of {name}"
            assert known.meters.keys() == known.seen_ms.keys(), f"TH3: addresses of {name}"
            for meter in known.meters.values():
                meter.check()


def network_of(address: str) -> str:
    """Whose address it is. One subscriber has all of an IPv6 network of 64 bits, and could come from
    another address with every guess."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return str(found)
