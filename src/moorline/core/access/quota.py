"""Room: core/access. How much of everything one principal may have, and how often it may ask.

    over = account.take(Quota.QUEUES, 1, now_ms)          None, or why not and when to come again
    account.give_back(Quota.QUEUES, 1)

A count (queues, bytes stored) is held until it is given back. A rate (messages in a second) is a bucket that
holds what one second allows, and fills all the time: so within any time t at most bound + bound · t are
taken. What is asked for at once is given whole or not at all; nothing is slowed. More than a second's worth
at once is never given: whoever asks is told the bound, and can ask for less.

All numbers are whole: a bucket counts thousandths, of which `bound` come in a millisecond, so that nothing is
lost to rounding, however often somebody asks.

Invariants, looked at by `check`:

    QA1  counts alone are held, and each of those that are listed is above 0
    QA2  a rate that is bounded has a bucket, and that holds between nothing and what a second allows
    QA3  what every publish asks for is taken from these same buckets
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

UNBOUNDED: Final = 1 << 62
"""A bound that nobody meets."""

_THOUSANDTHS: Final = 1_000


class Quota(StrEnum):
    """What is bounded; the names are those of the settings and of the catalog. Texts, since those are keys
    of tables at no cost; another Enum is hashed by a call into Python."""

    CONNECTIONS = "connections"
    QUEUES = "queues"
    TOPICS = "topics"
    GROUPS = "groups"
    SUBSCRIPTIONS = "subscriptions"
    STAGES = "stages"
    SESSIONS = "sessions"
    PATHS = "paths"
    STORED_BYTES = "stored_bytes"
    TOPIC_BYTES = "topic_bytes"
    MESSAGES_PER_S = "messages_per_s"
    BYTES_PER_S = "bytes_per_s"
    HEAVY_CALLS_PER_S = "heavy_calls_per_s"


_MESSAGES: Final = Quota.MESSAGES_PER_S
_BYTES: Final = Quota.BYTES_PER_S
RATES: Final = frozenset({Quota.MESSAGES_PER_S, Quota.BYTES_PER_S, Quota.HEAVY_CALLS_PER_S})
COUNTS: Final = frozenset(Quota) - RATES
OWNED: Final = frozenset(
    {
        Quota.QUEUES,
        Quota.TOPICS,
        Quota.GROUPS,
        Quota.SESSIONS,
        Quota.PATHS,
        Quota.STORED_BYTES,
        Quota.TOPIC_BYTES,
    }
)
"""Counts of what outlives connections. They are counted where these are kept, and told by whoever asks: an
account holds none of them but for a moment."""
MADE: Final = frozenset(
    {Quota.QUEUES, Quota.GROUPS, Quota.SESSIONS, Quota.STORED_BYTES, Quota.TOPIC_BYTES}
)
"""Of a listener, which owns nothing, what was made or brought through it within an hour or two; and so of
topics, by their names."""
SHARED: Final = frozenset(Quota) - {Quota.PATHS}
"""Those that all who come through one listener can have together."""
PUBLISHED: Final = frozenset({Quota.MESSAGES_PER_S, Quota.BYTES_PER_S})
"""Rates that a publish has to ask for."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A bound for each quota; None says nothing, so that the next one who is asked decides."""

    connections: int | None = None
    queues: int | None = None
    topics: int | None = None
    groups: int | None = None
    subscriptions: int | None = None
    stages: int | None = None
    sessions: int | None = None
    paths: int | None = None
    stored_bytes: int | None = None
    topic_bytes: int | None = None
    messages_per_s: int | None = None
    bytes_per_s: int | None = None
    heavy_calls_per_s: int | None = None

    def of(self, quota: Quota) -> int | None:
        bound: int | None = getattr(self, quota.value)
        return bound


NO_BOUNDS: Final = Bounds()


class OverBound(msgspec.Struct, frozen=True):
    """It was not given."""

    quota: Quota
    bound: int
    retry_ms: int | None
    """When there will be enough if nobody takes meanwhile; None: when something is given back, or never."""
    is_too_much_at_once: bool = False
    """More than the bound was asked for in one go: to wait changes nothing."""


class Account:
    """What one principal, or all who come through one listener, have and may have."""

    __slots__ = (
        "_bounds",
        "_buckets",
        "_held",
        "_of_bytes",
        "_of_messages",
        "has_rates",
        "is_bytes_bounded",
        "is_publishing_bounded",
        "is_rate_bounded",
    )

    def __init__(self, bounds: Bounds = NO_BOUNDS, now_ms: int = 0) -> None:
        self._bounds: dict[Quota, int] = {}
        self._held: dict[Quota, int] = {}
        """Of counts, only what is above 0."""
        self._buckets: dict[Quota, list[int]] = {}
        """Of rates that are bounded: [thousandths that are left, when that was so]."""
        self._of_messages: list[int] | None = None
        self._of_bytes: list[int] | None = None
        """Two of them, for `take_published`."""
        self.has_rates = False
        """Whether any rate is bounded."""
        self.is_publishing_bounded = False
        """Who publishes looks at this first: it costs nothing where nothing is bounded."""
        self.is_rate_bounded = False
        """Whether messages or bytes a second are."""
        self.is_bytes_bounded = False
        """Whether bytes that stay are: asked for at each publish of a listener's, and nobody else's."""
        self.set_bounds(bounds, now_ms)

    def bound(self, quota: Quota) -> int:
        return self._bounds.get(quota, UNBOUNDED)

    def held(self, quota: Quota) -> int:
        return self._held.get(quota, 0)

    def set_bounds(self, bounds: Bounds, now_ms: int) -> None:
        """They hold from now on. What is held above a new bound stays, and no more is given until it is
        below; what is left of a rate stays too, up to what the new one allows."""
        # All of them are read before one is changed: a bound that is refused leaves the old ones as they
        # were.
        found = {quota: bounds.of(quota) for quota in Quota}
        new = {quota: bound for quota, bound in found.items() if bound is not None}
        assert all(bound >= 0 for bound in new.values()), "a bound is not below 0"
        for quota in RATES:
            bound = new.get(quota, UNBOUNDED)
            if bound >= UNBOUNDED:
                self._buckets.pop(quota, None)
            elif quota in self._buckets:
                # Filled by the old bound until now. A new bucket in its place would be full: whoever has
                # the bounds read anew would have a second's worth again and again.
                left = min(self._filled(quota, now_ms), bound * _THOUSANDTHS)
                self._buckets[quota] = [left, now_ms]
            else:
                self._buckets[quota] = [bound * _THOUSANDTHS, now_ms]
        self._bounds = {quota: bound for quota, bound in new.items() if bound < UNBOUNDED}
        self._of_messages, self._of_bytes = self._buckets.get(_MESSAGES), self._buckets.get(_BYTES)
        self.has_rates = bool(self._buckets)
        self.is_rate_bounded = not PUBLISHED.isdisjoint(self._bounds)
        self.is_bytes_bounded = not {Quota.STORED_BYTES, Quota.TOPIC_BYTES}.isdisjoint(self._bounds)
        self.is_publishing_bounded = not {
            *PUBLISHED,
            Quota.TOPICS,
            Quota.TOPIC_BYTES,
        }.isdisjoint(self._bounds)

    def take(self, quota: Quota, amount: int, now_ms: int) -> OverBound | None:
        """Gives it, all of it, or says why not."""
        over = self._over(quota, amount, now_ms)
        if over is None:
            self._take(quota, amount)
        return over

    def take_all(self, wanted: Iterable[tuple[Quota, int]], now_ms: int) -> OverBound | None:
        """Several quotas, each named once: all of them or none."""
        wanted = list(wanted)
        # Asked in one pass and taken in another: a refusal by the last must not have cost anything of the
        # first.
        for quota, amount in wanted:
            over = self._over(quota, amount, now_ms)
            if over is not None:
                return over
        for quota, amount in wanted:
            self._take(quota, amount)
        return None

    def take_published(self, messages: int, size_bytes: int, now_ms: int) -> OverBound | None:
        """As `take_all` of both rates: written out, since every publish asks for it. Between two milliseconds
        it is two subtractions."""
        of_messages, of_bytes = self._of_messages, self._of_bytes
        messages_left = 0
        # Both are looked at before one is taken from.
        if of_messages is not None:
            if now_ms > of_messages[1]:
                self._fill(_MESSAGES, of_messages, now_ms)
            messages_left = of_messages[0] - messages * _THOUSANDTHS
            if messages_left < 0:
                return self._over(_MESSAGES, messages, now_ms)
        if of_bytes is not None:
            if now_ms > of_bytes[1]:
                self._fill(_BYTES, of_bytes, now_ms)
            bytes_left = of_bytes[0] - size_bytes * _THOUSANDTHS
            if bytes_left < 0:
                return self._over(_BYTES, size_bytes, now_ms)
            of_bytes[0] = bytes_left
        if of_messages is not None:
            of_messages[0] = messages_left
        return None

    def put_back(self, messages: int, size_bytes: int) -> None:
        """What `take_published` gave in this moment, because something else refused it."""
        if self._of_messages is not None:
            self._of_messages[0] += messages * _THOUSANDTHS
        if self._of_bytes is not None:
            self._of_bytes[0] += size_bytes * _THOUSANDTHS

    def room(self, quota: Quota, held: int, amount: int) -> OverBound | None:
        """Whether so much more may be had, of what is counted elsewhere: there are `held` of it."""
        assert quota in OWNED, f"{quota.value} is counted here"
        bound = self._bounds.get(quota)
        # What is taken here is on its way to where it is counted.
        if bound is None or held + self._held.get(quota, 0) + amount <= bound:
            return None
        return OverBound(quota, bound, None, is_too_much_at_once=amount > bound)

    def left(self, quota: Quota, now_ms: int) -> int:
        """Of a rate that is bounded: what may be taken now."""
        return self._filled(quota, now_ms) // _THOUSANDTHS

    def give_back(self, quota: Quota, amount: int) -> None:
        """Of a count. What was taken of a rate comes back with the time."""
        assert quota in COUNTS, f"{quota.value} comes back by itself"
        left = self._held.get(quota, 0) - amount
        assert amount >= 0, "less than nothing cannot be given back"
        assert left >= 0, f"{quota.value}: more is given back than was taken"
        if left:
            self._held[quota] = left
        else:
            self._held.pop(quota, None)

    def is_idle(self, now_ms: int) -> bool:
        """Nothing is held and every bucket is full: a new account would be the same."""
        return not self._held and all(
            self._filled(quota, now_ms) >= self._bounds[quota] * _THOUSANDTHS
            for quota in self._buckets
        )

    def _over(self, quota: Quota, amount: int, now_ms: int) -> OverBound | None:
        assert amount >= 0, "less than nothing cannot be taken"
        # Most have no bounds at all: this is asked with every message.
        bound = self._bounds.get(quota)
        if bound is None:
            return None
        if quota in COUNTS:
            # Nothing can always be had, also by who holds more than a bound that was lowered.
            if self._held.get(quota, 0) + amount <= bound or not amount:
                return None
            return OverBound(quota, bound, None, is_too_much_at_once=amount > bound)
        left, bucket = self._filled(quota, now_ms), self._buckets[quota]
        # Noted also when it is refused: what has come in counts from here. The later of both times, because
        # a clock that goes back would else fill the same milliseconds twice.
        bucket[:] = [left, max(now_ms, bucket[1])]
        missing = amount * _THOUSANDTHS - left
        if missing <= 0:
            return None
        # To wait would never be enough; and of a bound of 0 there is no time to wait for.
        if amount > bound:
            return OverBound(quota, bound, None, is_too_much_at_once=True)
        # Rounded up: who comes back at that time finds enough.
        return OverBound(quota, bound, -(-missing // bound))

    def _take(self, quota: Quota, amount: int) -> None:
        if quota in COUNTS:
            if amount:
                self._held[quota] = self._held.get(quota, 0) + amount
        elif quota in self._buckets:
            self._buckets[quota][0] -= amount * _THOUSANDTHS

    def _fill(self, quota: Quota, bucket: list[int], now_ms: int) -> None:
        bound = self._bounds[quota]
        bucket[0] = min(bound * _THOUSANDTHS, bucket[0] + bound * (now_ms - bucket[1]))
        bucket[1] = now_ms

    def _filled(self, quota: Quota, now_ms: int) -> int:
        """What is in a bucket by now; a clock that stands still, or goes back, adds nothing."""
        left, since_ms = self._buckets[quota]
        bound = self._bounds.get(quota, 0)
        return min(bound * _THOUSANDTHS, left + bound * max(0, now_ms - since_ms))

    def check(self) -> None:
        """Asserts the invariants."""
        held = {quota.value: amount for quota, amount in self._held.items()}
        assert self._held.keys() <= COUNTS, f"QA1: a rate is held: {held}"
        assert all(amount > 0 for amount in held.values()), f"QA1: {held}"
        bounded = {quota for quota in RATES if quota in self._bounds}
        assert self._buckets.keys() == bounded, f"QA2: buckets of {sorted(self._buckets)}"
        assert self.has_rates == bool(bounded), f"QA2: rates are bounded: {self.has_rates}"
        published = self._buckets.get(_MESSAGES), self._buckets.get(_BYTES)
        is_same = self._of_messages is published[0] and self._of_bytes is published[1]
        assert is_same, "QA3: publishes take from other buckets"
        for quota, (left, _) in self._buckets.items():
            is_within = 0 <= left <= self._bounds[quota] * _THOUSANDTHS
            assert is_within, f"QA2: {left} thousandths are left of {quota.value}"


class Accounts:
    """One for each name; those that say nothing more than a new one would are forgotten."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        """Those that were not looked at for longest first. A plain dict that loses its first again and again
        has to look over all that it lost to find the next."""

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[tuple[str, Account]]:
        return iter(list(self._accounts.items()))

    def get(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def open(self, name: str, bounds: Bounds, now_ms: int) -> Account:
        """The account of that name, made if there is none. Hold something of it, or ask again each time."""
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(bounds, now_ms)
        return found

    def forget_idle(self, now_ms: int, looks: int) -> int:
        """Looks at so many, those that were not looked at for longest; how many were forgotten."""
        forgotten = 0
        for _ in range(min(looks, len(self._accounts))):
            name, account = self._accounts.popitem(last=False)
            # One that owes nothing is made anew when its principal comes; kept, whoever can make up names
            # would fill our memory with them.
            if account.is_idle(now_ms):
                forgotten += 1
            else:
                self._accounts[name] = account
        return forgotten
