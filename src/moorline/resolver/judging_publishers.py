"""Room: resolver. What publishers may not publish any more leaves the directory, at each change of rights.

    Judging(publishers.judging.all, spawn).soon()     all publishers, one after the other, in slices

An entry was judged when it came. Without another look a publisher whose right is gone would be found for as
long as it says that it lives; and it is not asked to leave by itself, since it need not be honest. Whoever
proved itself by a password or token that is not taken any more is gone as a whole.

While rights are unknown nothing is taken away: nobody is told where anything is then.
"""

import logging
from collections.abc import Callable, Generator

from moorline.core.access.right import DEFAULT as MAKE_DEFAULT
from moorline.core.access.right import PUBLISH
from moorline.core.directory.path import DEFAULT
from moorline.core.directory.registry import Changed, Registration, Registry
from moorline.limits import ENTRIES_TAKEN_AT_ONCE, SUBTREES_JUDGED_MAX
from moorline.net.session_rights import SessionRights
from moorline.resolver.holders import Judge, Standing, standing_of
from moorline.wire.resolver import Holder

log = logging.getLogger("moorline.resolver")


class JudgingPublishers:
    """Of one resolver."""

    def __init__(
        self,
        registry: Registry,
        judge: Judge,
        changed: Callable[[Changed], None],
        purge_soon: Callable[[], None],
        taken_away: Callable[[Registration], None],
    ) -> None:
        """`taken_away` hears of who has lost some of its entries."""
        self._registry = registry
        self._judge = judge
        self._changed = changed
        self._purge_soon = purge_soon
        self._taken_away = taken_away

    def all(self) -> Generator[None, None, None]:
        for registration in list(self._registry):
            yield
            yield from self.entries_of(registration)

    def entries_of(self, registration: Registration) -> Generator[None, None, None]:
        """May be interrupted at each yield: whether it is still known is looked at behind each."""
        if not registration.is_found:
            return
        claim = registration.claim
        holder = Holder(claim.principal, claim.proof, claim.is_local, 0, claim.mark)
        standing = standing_of(self._judge, holder)
        if standing is Standing.GONE:
            log.info(
                "a publisher goes: its proof is not taken any more", extra=_words(registration)
            )
            self._registry.close(registration)
            self._purge_soon()
        elif not isinstance(standing, Standing) and len(registration.entries):
            yield from self._judged(registration, standing)

    def _judged(self, registration: Registration, rights: SessionRights) -> Generator[None]:
        may = _May(rights)
        if may.all:
            return
        entries, paths = registration.entries, list(registration.entries)
        count = 0
        for start in range(0, len(paths), ENTRIES_TAKEN_AT_ONCE):
            yield
            if not registration.is_found:
                return
            denied = [
                path
                for path in paths[start : start + ENTRIES_TAKEN_AT_ONCE]
                if (flags := entries.flags_of(path)) is not None and not may.publish(path, flags)
            ]
            if denied:
                count += len(denied)
                self._changed(self._registry.take_away(registration, denied))
        if count:
            words = {**_words(registration), "paths": count}
            log.info("paths of a publisher go: it may not publish them any more", extra=words)
            self._taken_away(registration)


class _May:
    """What one may publish. Most paths are below one that has the right as a whole: those cost a look."""

    def __init__(self, rights: SessionRights) -> None:
        self._rights = rights
        self._below: dict[str, int] = {}
        self.all = rights.is_node or not self._lacks(rights.everywhere("/"), DEFAULT)

    def publish(self, path: str, flags: int) -> bool:
        if not self._lacks(self._everywhere(path.rpartition("/")[0] or "/"), flags):
            return True
        return not self._lacks(self._rights.at(path), flags)

    @staticmethod
    def _lacks(bits: int, flags: int) -> bool:
        needed = PUBLISH | MAKE_DEFAULT if flags & DEFAULT else PUBLISH
        return bits & needed != needed

    def _everywhere(self, subtree: str) -> int:
        bits = self._below.get(subtree)
        if bits is None:
            if len(self._below) >= SUBTREES_JUDGED_MAX:
                return 0  # as many subtrees as paths: each path is looked up by itself
            bits = self._below[subtree] = self._rights.everywhere(subtree)
        return bits


def _words(registration: Registration) -> dict[str, str]:
    claim = registration.claim
    return {"principal": claim.principal, "address": claim.address}
