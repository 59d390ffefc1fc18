"""Room: resolver. Resolved paths: where each is, what may be done there, and the tokens that prove it."""

import random
from collections.abc import Callable, Generator, Sequence

from moorline.core.access.right import EVERYTHING
from moorline.core.directory.path import is_path, is_reserved
from moorline.core.directory.registry import Registration, Registry
from moorline.core.directory.token import Claim, Signer
from moorline.core.directory.tree import Holders
from moorline.errors import BadPath, NotFound, NotReady, Referred
from moorline.limits import PUBLISHERS_PER_ANSWER_MAX, RESOLVED_TOKENS_MAX
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.resolver.cluster_entries import ClusterEntries
from moorline.resolver.delegations import Delegations
from moorline.resolver.holders import holder_of
from moorline.resolver.rights import MAY_RESOLVE, has_everything, rights_at, why_not
from moorline.wire.resolver import (
    Holder,
    PathsResolved,
    PublisherFacts,
    Referral,
    ResolvedPath,
    ResolvePaths,
)

_BAD = ResolvedPath(BadPath.code)
_NOT_FOUND = ResolvedPath(NotFound.code)
_NOT_READY = ResolvedPath(NotReady.code)

PATHS_PER_STEP = 16
"""Resolved between two looks at the clock: some 40 µs, or a few times that with several tokens each."""

Told = tuple[int, Signer | None]
"""The place of a publisher in the answer, and who signs for it."""


class Finder:
    """Answers `ResolvePaths`."""

    def __init__(
        self,
        resolver: bytes,
        registry: Registry,
        cluster: ClusterEntries,
        delegations: Delegations,
        token_life_s: int,
        clock_s: Callable[[], int],
        chance: random.Random,
    ) -> None:
        self.resolver = resolver
        self.registry = registry
        self.cluster = cluster
        self.delegations = delegations
        self.token_life_s = token_life_s
        self.clock_s = clock_s
        self.chance = chance
        self.resolved = 0
        """Paths that were asked for."""

    def resolving(
        self, session: Session, call: ResolvePaths, now_ms: int
    ) -> Generator[None, None, PathsResolved]:
        """In steps, at which it may be interrupted; it returns the answer."""
        self.resolved += len(call.paths)
        rights = session.rights
        holder = holder_of(session)
        answer = _Answer(self, rights, holder, len(call.paths), now_ms)
        found: list[ResolvedPath] = []
        for start in range(0, len(call.paths), PATHS_PER_STEP):
            if start:
                yield
            answer.find(call.paths[start : start + PATHS_PER_STEP], found)
        return PathsResolved(
            call.call,
            self.resolver,
            holder,
            answer.expires_s,
            answer.publishers,
            found,
            answer.referrals,
        )


class _Answer:
    """One answer in the making: publishers and referrals are told once, whatever paths they are of."""

    def __init__(
        self, finder: Finder, rights: SessionRights, holder: Holder, paths: int, now_ms: int
    ) -> None:
        self.publishers: list[PublisherFacts] = []
        self.referrals: list[Referral] = []
        self.expires_s = finder.clock_s() + finder.token_life_s
        self._finder = finder
        self._registry = finder.registry
        self._rights = rights
        self._holder = holder
        self._has_everything = has_everything(rights)
        self._is_ready = finder.registry.is_ready(now_ms)
        self._share = max(1, RESOLVED_TOKENS_MAX // max(1, paths))
        self._told: dict[int, Told] = {}
        """By the number of the registration."""
        self._by_holders: dict[Holders, tuple[list[Told], int]] = {}
        self._referral_places: dict[str, int] = {}
        self._is_plain = self._has_everything and not finder.delegations
        """Whether all that matters of a path is who holds it."""
        self._quickly: dict[Holders | None, tuple[int, int, Callable[[str], bytes]]] = {}
        """Of plain answers: the flags, the one publisher and what signs for it, by holders met before."""

    def find(self, paths: Sequence[str], found: list[ResolvedPath]) -> None:
        """Most paths of a batch have the holders of one before them, and their token is all that is new."""
        holders_of, quickly = self._registry.tree.holders_of, self._quickly.get
        add, permissions = found.append, EVERYTHING
        for path in paths:
            known = quickly(holders_of(path))
            if known is None:
                add(self._found(path))
            else:
                flags, place, sign = known
                add(ResolvedPath("", permissions, flags, [(place, sign(path))]))

    def _found(self, path: str) -> ResolvedPath:
        holders = self._registry.tree.find(path)
        if holders is None and not is_path(path):
            return _BAD
        if self._finder.delegations and (referral := self._finder.delegations.of(path)):
            return ResolvedPath(Referred.code, referral=self._place_of(referral))
        permissions = EVERYTHING if self._has_everything else rights_at(self._rights, path)
        if not permissions & MAY_RESOLVE:
            return ResolvedPath(why_not(self._rights))
        # Those that were met before in this answer are publishers, and no nodes: most paths end here.
        known = self._by_holders.get(holders) if holders is not None else None
        if known is None and is_reserved(path) and (facts := self._finder.cluster.facts(path)):
            return self._node(permissions, facts)
        told, flags = known or self._told_of(path, holders)
        if not told:
            return _NOT_FOUND if self._is_certain(path) else _NOT_READY
        return ResolvedPath(
            "",
            permissions,
            flags,
            [
                (place, b"" if signer is None else signer.token(path, permissions))
                for place, signer in told
            ],
        )

    def _is_certain(self, path: str) -> bool:
        """Whether what is not here is nowhere. What is of the nodes is whole from the start on."""
        return self._is_ready or is_reserved(path)

    def _told_of(self, path: str, holders: Holders | None) -> tuple[list[Told], int]:
        if holders is None:
            return self._shared(*self._registry.find(path))
        known = self._by_holders.get(holders)
        if known is None:
            found, flags = self._registry.found_of(holders)
            if not found:
                # All of them are gone: a default may be there.
                return self._shared(*self._registry.find(path))
            known = self._by_holders[holders] = self._shared(found, flags)
            told, flags = known
            if self._is_plain and len(told) == 1 and (signer := told[0][1]) is not None:
                self._quickly[holders] = (flags, told[0][0], signer.signing(EVERYTHING))
        return known

    def _shared(self, found: list[Registration], flags: int) -> tuple[list[Told], int]:
        if len(found) > self._share:
            # By chance, so that those who ask again hear of others; the best priority before all.
            self._finder.chance.shuffle(found)
            found.sort(key=lambda one: one.claim.priority)
            found = found[: self._share]
        told = [one for registration in found if (one := self._tell(registration)) is not None]
        return told, flags

    def _tell(self, registration: Registration) -> Told | None:
        told = self._told.get(registration.number)
        if told is None:
            if len(self.publishers) >= PUBLISHERS_PER_ANSWER_MAX:
                return None
            claim = registration.claim
            self.publishers.append(
                PublisherFacts(
                    claim.instance,
                    claim.address,
                    claim.principal,
                    claim.mechanisms,
                    claim.priority,
                    claim.service,
                )
            )
            told = self._told[registration.number] = (
                len(self.publishers) - 1,
                self._signer(registration),
            )
        return told

    def _signer(self, registration: Registration) -> Signer | None:
        """None for a publisher that would not let the holder in by what it has proven itself with here."""
        taken = registration.claim.mechanisms
        if self._holder.proof not in taken and "anonymous" not in taken:
            return None
        holder = self._holder
        return Signer(
            registration.secret,
            Claim(
                self._finder.resolver,
                registration.claim.instance,
                holder.principal,
                holder.proof,
                holder.is_local,
                self.expires_s,
                "",
                0,
                holder.ends_s,
                holder.mark,
            ),
        )

    def _node(self, permissions: int, facts: tuple[PublisherFacts, ...]) -> ResolvedPath:
        places = []
        for one in facts:
            if one in self.publishers:
                places.append(self.publishers.index(one))
            elif len(self.publishers) < PUBLISHERS_PER_ANSWER_MAX:
                self.publishers.append(one)
                places.append(len(self.publishers) - 1)
        return ResolvedPath("", permissions, 0, [(place, b"") for place in places])

    def _place_of(self, referral: Referral) -> int:
        place = self._referral_places.get(referral.path)
        if place is None:
            place = self._referral_places[referral.path] = len(self.referrals)
            self.referrals.append(referral)
        return place
