"""Room: access. Which bounds apply to whom, and what a call that meets one is told.

For each quota by itself the first of these that says anything decides:

    the principal's own row  ──►  the most generous row of its groups  ──►  the default of the settings

A listener may have bounds as well, which all who come through it share: they hold beside those of the
principal, so that an open port cannot take everything from those who come by another.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from moorline.core.access.quota import (
    NO_BOUNDS,
    RATES,
    Account,
    Accounts,
    Bounds,
    OverBound,
    Quota,
)
from moorline.errors import OverQuota
from moorline.limits import ACCOUNTS_LOOKED_AT
from moorline.net.clock import monotonic_ms

GroupsOf = Callable[[str], Iterable[str]]
Clock = Callable[[], int]


class QuotaTable(msgspec.Struct, frozen=True):
    """All bounds, as the catalog and the settings have them."""

    rows: Mapping[str, Bounds] = {}
    """By subject: a principal, or `@group`."""
    default: Bounds = NO_BOUNDS
    listeners: Mapping[str, Bounds] = {}
    """By the address that a listener was given in the settings."""

    def bounds_of(self, principal: str, groups: Iterable[str]) -> Bounds:
        own = self.rows.get(principal, NO_BOUNDS)
        shared = [row for row in map(self.rows.get, groups) if row is not None]

        def decided(quota: Quota) -> int | None:
            bound = own.of(quota)
            if bound is not None:
                return bound
            stated = [bound for row in shared if (bound := row.of(quota)) is not None]
            return max(stated) if stated else self.default.of(quota)

        return Bounds(**{quota.value: decided(quota) for quota in Quota})


class Held(NamedTuple):
    """The accounts that a connection takes from: its principal's, and that of the listener it came by."""

    principal: Account
    listener: Account | None
    """None for what comes by no listener, such as a call that another node passed on."""

    @property
    def has_rates(self) -> bool:
        """Whether a publish has to ask at all."""
        return self.principal.has_rates or (self.listener is not None and self.listener.has_rates)


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

    def held_by(self, principal: str, listener: str = "") -> Held:
        """The accounts of a connection."""
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

    def give_back(self, held: Held, *given: tuple[Quota, int]) -> None:
        _give_back(held.principal, given)
        if held.listener is not None:
            _give_back(held.listener, given)

    def forget_idle(self) -> int:
        """To be called from time to time; how many were forgotten."""
        now_ms = self._now_ms()
        return self._principals.forget_idle(now_ms, ACCOUNTS_LOOKED_AT)

    def _bounds_of(self, principal: str) -> Bounds:
        return self._table.bounds_of(principal, self._groups_of(principal))


class Allowance:
    """What one connection may take, of its accounts: an attribute of its session."""

    __slots__ = ("_held", "_quotas")

    def __init__(self, quotas: Quotas, held: Held) -> None:
        self._quotas = quotas
        self._held = held

    @property
    def has_rates(self) -> bool:
        return self._held.has_rates

    def take(self, *wanted: tuple[Quota, int]) -> None:
        self._quotas.take(self._held, *wanted)

    def give_back(self, *given: tuple[Quota, int]) -> None:
        self._quotas.give_back(self._held, *given)


def over_quota(over: OverBound) -> OverQuota:
    """What whoever asked is told: the quota, its bound, and when to come again."""
    name = f"the quota {over.quota.value} is {over.bound:,}"
    if over.is_too_much_at_once:
        return OverQuota(f"{name}, and more was asked for at once: ask for less")
    if over.retry_ms is None:
        return OverQuota(f"{name}, and all of it is taken: come again when something is given back")
    return OverQuota(f"{name}: come again in {max(1, over.retry_ms):,} ms")


def _give_back(account: Account, given: Iterable[tuple[Quota, int]]) -> None:
    for quota, amount in given:
        if quota not in RATES:
            account.give_back(quota, amount)
