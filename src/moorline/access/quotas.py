"""Room: access. Which bounds apply to whom, and what a call that meets one is told.

For each quota by itself the first of these that says anything decides:

    the principal's own row  ──►  the most generous row of its groups  ──►  the same two of the settings

A listener may have bounds as well, which all who come through it share: they hold beside those of the
principal, so that an open port cannot take everything from those who come by another.

Whoever is on this machine and proved nothing has the account `@loopback`; who came from elsewhere without a
proof is `anonymous`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple
from weakref import WeakSet

import msgspec

from moorline.core.access.principal import ANONYMOUS, LOOPBACK
from moorline.core.access.quota import (
    MADE,
    NO_BOUNDS,
    RATES,
    UNBOUNDED,
    Account,
    Accounts,
    Bounds,
    OverBound,
    Quota,
)
from moorline.core.access.recent import Recent
from moorline.core.access.topic_names import TopicNames
from moorline.errors import OverQuota
from moorline.limits import ACCOUNTS_LOOKED_AT
from moorline.net.clock import monotonic_ms

GroupsOf = Callable[[str], Iterable[str]]
Clock = Callable[[], int]


class QuotaTable(msgspec.Struct, frozen=True):
    """All bounds, as the catalog and the settings have them."""

    rows: Mapping[str, Bounds] = {}
    """By subject: a principal, or `@group`."""
    defaults: Mapping[str, Bounds] = {}
    """The same of the settings: they count where the catalog says nothing."""
    listeners: Mapping[str, Bounds] = {}
    """By the address that a listener was given in the settings."""

    def bounds_of(self, principal: str, groups: Iterable[str]) -> Bounds:
        of_groups = list(groups)
        by_rows = partial(_stated, self.rows, principal, of_groups)
        by_settings = partial(_stated, self.defaults, principal, of_groups)

        def decided(quota: Quota) -> int | None:
            bound = by_rows(quota)
            return by_settings(quota) if bound is None else bound

        return Bounds(**{quota.value: decided(quota) for quota in Quota})


def _stated(
    rows: Mapping[str, Bounds], principal: str, groups: list[str], quota: Quota
) -> int | None:
    own = rows.get(principal, NO_BOUNDS).of(quota)
    if own is not None:
        return own
    shared = (row.of(quota) for row in map(rows.get, groups) if row is not None)
    return max((bound for bound in shared if bound is not None), default=None)


class Held(NamedTuple):
    """The accounts that a connection takes from: its principal's, and that of the listener it came by."""

    principal: Account
    listener: Account | None
    """None for what comes by no listener, such as a call that another node passed on."""

    @property
    def is_publishing_bounded(self) -> bool:
        """Whether a publish has to ask at all."""
        listener = self.listener
        return self.principal.is_publishing_bounded or (
            listener is not None and listener.is_publishing_bounded
        )


class Quotas:
    """The accounts of a node. A connection holds one of `CONNECTIONS`, so its accounts stay while it does."""

    def __init__(
        self, table: QuotaTable, groups_of: GroupsOf, now_ms: Clock = monotonic_ms
    ) -> None:
        self._table = table
        self._groups_of = groups_of
        self._now_ms = now_ms
        self._principals = Accounts()
        self._listeners = Accounts()
        self._topics: dict[str, TopicNames] = {}
        """Of principals whose topics are bounded."""
        self._topics_by_listener: dict[str, TopicNames] = {}
        """The same of listeners."""
        self._made: dict[tuple[str, Quota], Recent] = {}
        """What came lately by listeners that bound it."""
        self._allowances: WeakSet[Allowance] = WeakSet()
        """Those of the connections that are here."""

    def __len__(self) -> int:
        return len(self._principals)

    def load(self, table: QuotaTable) -> None:
        """Other bounds, or other members of groups: they hold at once, for those too who are here."""
        self._table = table
        now_ms = self._now_ms()
        for name, account in self._principals:
            account.set_bounds(self._bounds_of(name), now_ms)
        for name, account in self._listeners:
            account.set_bounds(table.listeners.get(name, NO_BOUNDS), now_ms)
        for allowance in self._allowances:
            allowance.look()

    def held_by(self, principal: str, listener: str = "") -> Held:
        """The accounts of a connection; of one on this machine that proved nothing, that of LOOPBACK."""
        now_ms = self._now_ms()
        bounds = self._table.listeners.get(listener, NO_BOUNDS)
        return Held(
            self._principals.get(principal)
            or self._principals.open(principal, self._bounds_of(principal), now_ms),
            self._listeners.open(listener, bounds, now_ms) if listener else None,
        )

    def take(self, held: Held, *wanted: tuple[Quota, int]) -> None:
        """All that one call needs, or nothing of it: then `OverQuota` says what to do."""
        now_ms = self._now_ms()
        over = held.principal.take_all(wanted, now_ms)
        if over is None and held.listener is not None:
            over = held.listener.take_all(wanted, now_ms)
            if over is not None:
                # Of the principal's rates it stays taken: whoever goes on asking a full listener pays.
                _give_back(held.principal, wanted)
        if over is not None:
            raise over_quota(over)

    def take_published(self, held: Held, messages: int, size_bytes: int) -> None:
        """As `take` of both rates, for every publish. Of the principal's it stays taken where the listener
        has no more: whoever goes on asking a full listener pays."""
        now_ms = self._now_ms()
        principal, listener = held
        over = principal.take_published(messages, size_bytes, now_ms)
        if over is None and listener is not None:
            over = listener.take_published(messages, size_bytes, now_ms)
        if over is not None:
            raise over_quota(over)

    def take_run(
        self,
        listener: str,
        held: Held,
        messages: int,
        size_bytes: int,
        now_ms: int,
        kept_as: Quota,
    ) -> bool:
        """As `take_published` and `take_made` for a whole run of calls, at once. False and nothing taken
        where it is too much: then each of them is asked for by itself, and pays by itself."""
        principal, through = held
        if principal.take_published(messages, size_bytes, now_ms) is not None:
            return False
        if through is None:
            return True
        if through.take_published(messages, size_bytes, now_ms) is None:
            try:
                self.take_made(listener, held, kept_as, size_bytes)
            except OverQuota:
                through.put_back(messages, size_bytes)
            else:
                return True
        principal.put_back(messages, size_bytes)
        return False

    def take_made(self, listener: str, held: Held, quota: Quota, amount: int) -> None:
        """Something that stays is about to be made by it; taken also where something else refuses then."""
        assert quota in MADE, "counts that end with a connection are held by the account itself"
        bound = UNBOUNDED if held.listener is None else held.listener.bound(quota)
        if bound >= UNBOUNDED:
            return
        now_ms = self._now_ms()
        recent = self._made.get((listener, quota))
        if recent is None:
            recent = self._made[listener, quota] = Recent(quota, now_ms)
        over = recent.add(amount, bound, now_ms)
        if over is not None:
            raise over_quota(over)

    def give_back(self, held: Held, *given: tuple[Quota, int]) -> None:
        _give_back(held.principal, given)
        if held.listener is not None:
            _give_back(held.listener, given)

    def tell(self, allowance: "Allowance") -> None:
        """From now on it looks at its bounds whenever they change."""
        self._allowances.add(allowance)
        allowance.look()

    def check_room(self, account: Account, quota: Quota, held: int, amount: int) -> None:
        """Of what is counted elsewhere, where there are `held` of it."""
        over = account.room(quota, held, amount)
        if over is not None:
            raise over_quota(over)

    def take_topics(
        self, principal: str, listener: str, held: Held, topics: Collection[str]
    ) -> None:
        """They are published to: those that are new count, or none of them is taken."""
        self._take_topics(self._topics, principal, held.principal, topics)
        if held.listener is not None:
            self._take_topics(self._topics_by_listener, listener, held.listener, topics)

    def _take_topics(
        self,
        names_by: dict[str, TopicNames],
        whose: str,
        account: Account,
        topics: Collection[str],
    ) -> None:
        bound = account.bound(Quota.TOPICS)
        if bound >= UNBOUNDED:
            return
        now_ms, names = self._now_ms(), names_by.get(whose)
        if names is not None and names.knows(map(hash, topics), now_ms):
            return
        if names is None:
            names = names_by[whose] = TopicNames(now_ms)
        over = names.add(map(hash, topics), bound, now_ms)
        if over is not None:
            raise over_quota(over)

    def bound_of(self, name: str, quota: Quota) -> int:
        """Of somebody who need not be here."""
        account = self._principals.get(name)
        if account is not None:
            return account.bound(quota)
        bound = self._bounds_of(name).of(quota)
        return UNBOUNDED if bound is None else bound

    def used(self, name: str) -> dict[Quota, tuple[int, int]]:
        """What somebody has, and its bound: of all but what is counted elsewhere. Of a rate it is what was
        taken of the present second."""
        now_ms = self._now_ms()
        account = self._principals.get(name) or Account(self._bounds_of(name), now_ms)
        names = self._topics.get(name)
        found: dict[Quota, tuple[int, int]] = {}
        for quota in Quota:
            bound, used = account.bound(quota), account.held(quota)
            if quota is Quota.TOPICS and names is not None:
                used = names.count(now_ms)
            elif quota in RATES and bound < UNBOUNDED:
                used = bound - account.left(quota, now_ms)
            found[quota] = (used, bound)
        return found

    def forget_idle(self) -> int:
        """To be called from time to time; how many were forgotten."""
        now_ms = self._now_ms()
        for names_by in (self._topics, self._topics_by_listener):
            for name in [name for name, names in names_by.items() if not names.count(now_ms)]:
                del names_by[name]
        return self._principals.forget_idle(now_ms, ACCOUNTS_LOOKED_AT)

    def _bounds_of(self, name: str) -> Bounds:
        principal = ANONYMOUS if name == LOOPBACK else name
        return self._table.bounds_of(principal, self._groups_of(name))


class Allowance:
    """What one connection may take, of its accounts: an attribute of its session.

    What every message asks for are attributes: they are looked up when bounds change, and not by each.
    """

    __slots__ = (
        "__weakref__",
        "_held",
        "_is_listener_bounded",
        "_is_listener_bytes_bounded",
        "_listener",
        "_name",
        "_quotas",
        "is_publishing_bounded",
        "is_rate_bounded",
        "topic_bytes_max",
    )

    def __init__(self, quotas: Quotas, held: Held, name: str = "", listener: str = "") -> None:
        """`name` is that of its principal's account, `listener` the one that it came by."""
        self._quotas = quotas
        self._held = held
        self._name = name
        self._listener = listener
        quotas.tell(self)

    def look(self) -> None:
        """At its bounds, which are others now."""
        principal, listener = self._held
        self._is_listener_bytes_bounded = listener is not None and listener.is_bytes_bounded
        self._is_listener_bounded = self._is_listener_bytes_bounded or (
            listener is not None and listener.is_rate_bounded
        )
        self.is_rate_bounded = principal.is_rate_bounded or self._is_listener_bounded
        self.is_publishing_bounded = self._held.is_publishing_bounded
        self.topic_bytes_max = principal.bound(Quota.TOPIC_BYTES)

    def bound(self, quota: Quota) -> int:
        return self._held.principal.bound(quota)

    def check_room(self, quota: Quota, held: int, amount: int = 1) -> None:
        self._quotas.check_room(self._held.principal, quota, held, amount)

    def take_topics(self, topics: Collection[str]) -> None:
        """Names that are taken stay so if something else refuses the call: whoever comes again uses them."""
        self._quotas.take_topics(self._name, self._listener, self._held, topics)

    def take_published(
        self, messages: int, size_bytes: int, kept_as: Quota = Quota.TOPIC_BYTES
    ) -> None:
        if self.is_rate_bounded:
            self._quotas.take_published(self._held, messages, size_bytes)
            if self._is_listener_bytes_bounded:
                self.take_made(kept_as, size_bytes)

    def take_run(
        self, messages: int, size_bytes: int, now_ms: int, kept_as: Quota = Quota.TOPIC_BYTES
    ) -> bool:
        if self._is_listener_bounded:
            return self._quotas.take_run(
                self._listener, self._held, messages, size_bytes, now_ms, kept_as
            )
        return self._held[0].take_published(messages, size_bytes, now_ms) is None

    def is_bounded(self, quota: Quota) -> bool:
        principal, listener = self._held
        return principal.bound(quota) < UNBOUNDED or (
            listener is not None and listener.bound(quota) < UNBOUNDED
        )

    def take_made(self, quota: Quota, amount: int = 1) -> None:
        """Of what stays, the part of the listener; its principal's is counted where it is kept."""
        self._quotas.take_made(self._listener, self._held, quota, amount)

    def take(self, *wanted: tuple[Quota, int]) -> None:
        self._quotas.take(self._held, *wanted)

    def give_back(self, *given: tuple[Quota, int]) -> None:
        self._quotas.give_back(self._held, *given)


def account_of(principal: str, is_local: bool) -> str:
    """Whose account it is: who proved nothing is another one on this machine than elsewhere."""
    return LOOPBACK if principal == ANONYMOUS and is_local else principal


def over_quota(over: OverBound) -> OverQuota:
    """What whoever asked is told: the quota, its bound, and when to come again."""
    text = f"the quota {over.quota.value} is {over.bound:,}"
    if over.is_too_much_at_once:
        text += ", and more was asked for at once: ask for less"
    elif over.retry_ms is None:
        text += ", and all of it is taken: come again when something is given back"
    else:
        text += f": come again in {max(1, over.retry_ms):,} ms"
    error = OverQuota(text)
    error.quota, error.bound = over.quota.value, over.bound
    error.retry_after_ms = None if over.retry_ms is None else max(1, over.retry_ms)
    return error


def _give_back(account: Account, given: Iterable[tuple[Quota, int]]) -> None:
    for quota, amount in given:
        if quota not in RATES:
            account.give_back(quota, amount)
