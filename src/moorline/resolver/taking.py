"""Room: resolver. Entries that a publisher brings: each is judged by itself, and taken or told why not.

    taken = await in_slices(taking.steps(session, registration, entries), principal)

A thousand entries of a call are several milliseconds, and a publisher has dozens of calls under way when it
brings all that it has to a resolver that is empty. So they are taken in steps, between which others have
their turn. Whatever may change between two steps (bounds, rights, whether the publisher is still known) is
looked at in each of them.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from moorline.core.access.quota import Quota
from moorline.core.access.right import DEFAULT as MAKE_DEFAULT
from moorline.core.access.right import PUBLISH
from moorline.core.directory.entry_set import Entry
from moorline.core.directory.path import DEFAULT, FLAGS, is_path, is_reserved
from moorline.core.directory.registry import Changed, Registration, Registry
from moorline.errors import BadPath, Denied, LimitReached, OverQuota, PublisherGone, Referred
from moorline.limits import ENTRIES_TAKEN_AT_ONCE
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.resolver.delegations import Delegations
from moorline.resolver.rights import has_everything, why_not
from moorline.wire.resolver import Referral


class Bounds:
    """How much is kept."""

    def __init__(
        self,
        *,
        paths_max: int,
        publisher_paths_max: int,
        publishers_max: int,
        principal_publishers_max: int,
    ) -> None:
        self.paths_max = paths_max
        self.publisher_paths_max = publisher_paths_max
        self.publishers_max = publishers_max
        self.principal_publishers_max = principal_publishers_max


class Taken(NamedTuple):
    """What became of the entries of a call: the others are published."""

    refused: list[tuple[int, str]]
    """Places of those that are not, with the code why, in their order."""
    referrals: list[Referral]


class Taking:
    """Of one resolver."""

    def __init__(
        self,
        registry: Registry,
        delegations: Delegations,
        bounds: Bounds,
        changed: Callable[[Changed], None],
    ) -> None:
        self._registry = registry
        self._delegations = delegations
        self._bounds = bounds
        self._changed = changed

    def steps(
        self, session: Session, registration: Registration, entries: Sequence[Entry]
    ) -> Generator[None, None, Taken]:
        """May be interrupted at each yield; it returns what was refused."""
        refused: list[tuple[int, str]] = []
        referrals: dict[str, Referral] = {}
        for start in range(0, len(entries), ENTRIES_TAKEN_AT_ONCE):
            if start:
                yield
            if not registration.is_found:
                raise PublisherGone(
                    "this resolver has forgotten this publisher while it published: another one has its "
                    "address, or it was closed. Log in again"
                )
            some = entries[start : start + ENTRIES_TAKEN_AT_ONCE]
            refused += [
                (start + place, code)
                for place, code in self._take(session, registration, some, referrals)
            ]
        return Taken(refused, list(referrals.values()))

    def _take(
        self,
        session: Session,
        registration: Registration,
        some: Sequence[Entry],
        referrals: dict[str, Referral],
    ) -> list[tuple[int, str]]:
        rights = session.rights
        may_all = has_everything(rights)
        entries: list[Entry] = []
        refused: list[tuple[int, str]] = []
        for place, (path, flags) in enumerate(some):
            code = self._why_not(rights, path, flags, referrals, may_all=may_all)
            if code:
                refused.append((place, code))
            else:
                entries.append((path, flags))
        for room, code in (
            (self._room_of(registration), LimitReached.code),
            (self._quota_left(session, registration), OverQuota.code),
        ):
            if len(entries) > room:
                entries, over = fitting(registration, entries, room)
                refused += [(place, code) for place, (path, _) in enumerate(some) if path in over]
        self._changed(self._registry.publish(registration, entries, monotonic_ms()))
        return sorted(refused)

    def _why_not(
        self,
        rights: SessionRights,
        path: str,
        flags: int,
        referrals: dict[str, Referral],
        *,
        may_all: bool,
    ) -> str:
        if flags & ~FLAGS or not is_path(path):
            return BadPath.code
        if self._delegations and (referral := self._delegations.of(path)) is not None:
            referrals[referral.path] = referral
            return Referred.code
        if is_reserved(path) and not rights.is_node:
            return Denied.code
        if may_all:
            return ""
        needed = PUBLISH | MAKE_DEFAULT if flags & DEFAULT else PUBLISH
        return "" if rights.at(path) & needed == needed else why_not(rights)

    def _quota_left(self, session: Session, registration: Registration) -> int:
        """Paths that its principal may have yet, whichever of its publishers they are of."""
        if session.allowance is None or session.rights.is_node:
            return ENTRIES_TAKEN_AT_ONCE
        held = self._registry.entries_of(registration.claim.whose)
        return max(0, session.allowance.bound(Quota.PATHS) - held)

    def _room_of(self, registration: Registration) -> int:
        bounds = self._bounds
        return max(
            0,
            min(
                bounds.publisher_paths_max - len(registration.entries),
                bounds.paths_max - self._registry.entry_count,
            ),
        )


def fitting(
    registration: Registration, entries: Sequence[Entry], room: int
) -> tuple[list[Entry], set[str]]:
    """Those that are there anyway, and others while there is room; and those that are too much."""
    taken: list[Entry] = []
    over: set[str] = set()
    for path, flags in entries:
        if path in registration.entries:
            taken.append((path, flags))
        elif room:
            room -= 1
            taken.append((path, flags))
        else:
            over.add(path)
    return taken, over
