"""Room: resolver. Subtrees that other clusters answer for, found level by level."""

from collections.abc import Iterable

from moorline.config.resolver import Delegation
from moorline.core.directory.path import is_at_or_below, parent_of
from moorline.wire.resolver import Referral


class Delegations:
    def __init__(self, delegations: Iterable[Delegation], ttl_ms: int) -> None:
        self._referrals = {
            one.path: Referral(one.path, one.addresses, ttl_ms) for one in delegations
        }

    def __bool__(self) -> bool:
        return bool(self._referrals)

    def of(self, path: str) -> Referral | None:
        """Where a path is answered for; the nearest delegation at or above it."""
        while path != "/":
            found = self._referrals.get(path)
            if found is not None:
                return found
            path = parent_of(path)
        return None

    def below(self, path: str) -> list[Referral]:
        """Those within a subtree, in the order of their paths."""
        return [
            referral for at, referral in sorted(self._referrals.items()) if is_at_or_below(at, path)
        ]

    def children(self, path: str) -> list[str]:
        """The children of a path that a delegation is at or below."""
        start = len(path) + 1 if path != "/" else 1
        found = set()
        for referral in self.below(path):
            if referral.path != path:
                end = referral.path.find("/", start)
                found.add(referral.path if end < 0 else referral.path[:end])
        return sorted(found)
