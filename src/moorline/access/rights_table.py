"""Room: access. The table of rights in a node's memory, kept up to date.

    table = RightsTable(AccessCatalog(catalog), revocation_ms=2_000, stale_ms=60_000, is_embedded=False)
    async with table.running():                           loaded once, then every change within the bound
        rights = table.rights("alice", Proof.PASSWORD, is_local=False)
        rights.allows(WRITE, "/topics/orders/eu")
        rights.everywhere("/topics") & WRITE              one look for a whole run of calls

A change of the table is a new generation: what was remembered of the one before is not used any more, and
whoever runs something by a right hears of it (`on_change`) and judges again. Design: docs/design/access.md.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Protocol

from moorline.access.rights import Rights
from moorline.catalog.access import Loaded, Removal, TokenRow, UserState, Version
from moorline.core.access.freshness import Freshness, Knowledge
from moorline.core.access.grants import Explanation, Grants
from moorline.core.access.principal import LOOPBACK, Proof, built_in_groups
from moorline.core.access.row import Subjects
from moorline.errors import MoorlineError
from moorline.limits import (
    ACCESS_CHANGES_AT_ONCE_MAX,
    ACCESS_LOOKS_PER_REVOCATION,
    PROOF_MARK_BYTES,
    VERDICTS_KEPT_MAX,
    VERDICTS_OF_ALL_MAX,
)
from moorline.net.clock import boot_ms
from moorline.net.session_rights import Name, Passing, Wanted
from moorline.net.slices import in_slices

log = logging.getLogger("moorline.access")

_MARK_VERSIONS = Struct(">QQ")
_TOKEN_MARK_BYTES = PROOF_MARK_BYTES - _MARK_VERSIONS.size


class Source(Protocol):
    """Where the table comes from: `catalog.access.AccessCatalog`."""

    async def version(self) -> Version: ...

    async def load(self, known: Version | None = None) -> Loaded | None: ...


class _Contents:
    """What one generation is made of."""

    def __init__(self) -> None:
        self.grants = Grants()
        self.groups: dict[str, set[str]] = {}
        """Those of the catalog in which a principal is."""
        self.users: dict[str, UserState] = {}
        self.tokens: dict[bytes, TokenRow] = {}
        self.token_marks: set[bytes] = set()
        """What marks have of their hashes."""
        self.quotas: dict[str, dict[str, int]] = {}
        self.owners: dict[str, str] = {}

    def built(self, loaded: Loaded) -> Generator[None]:
        """From nothing; a step for each row."""
        for _ in self.grants.filling(loaded.grants()):
            yield
        self.put(loaded, has_grants=False)

    def change(self, loaded: Loaded) -> None:
        for removal in loaded.removed:
            self._remove(removal)
        self.put(loaded)

    def put(self, loaded: Loaded, *, has_grants: bool = True) -> None:
        if has_grants:
            for row in loaded.grants():
                self.grants.put(row)
        for group, member in loaded.members:
            self.groups.setdefault(member, set()).add(group)
        self.users.update(loaded.users)
        self.tokens.update(loaded.tokens)
        self.token_marks.update(digest[:_TOKEN_MARK_BYTES] for digest, _ in loaded.tokens)
        for subject, kind, amount in loaded.quotas:
            self.quotas.setdefault(subject, {})[kind] = amount
        self.owners.update(loaded.owners)

    def _remove(self, removal: Removal) -> None:
        kind, first, second = removal
        if kind == "grant":
            self.grants.remove(first, second)
        elif kind == "member":
            _discard(self.groups, second, first)
        elif kind == "user":
            self.users.pop(first, None)
        elif kind == "token":
            digest = bytes.fromhex(second)
            self.tokens.pop(digest, None)
            self.token_marks.discard(digest[:_TOKEN_MARK_BYTES])
        elif kind == "quota":
            kinds = self.quotas.get(first, {})
            kinds.pop(second, None)
            if not kinds:
                self.quotas.pop(first, None)
        else:
            # A newer node may know more kinds; nothing of ours depends on them.
            log.debug("a removal of an unknown kind", extra={"kind": kind})


class RightsTable:
    """All that the catalog says of rights, as this node knows it."""

    def __init__(
        self,
        source: Source,
        *,
        revocation_ms: int,
        stale_ms: int,
        is_embedded: bool,
        now_ms: Callable[[], int] = boot_ms,
    ) -> None:
        self.generation = 0
        """Of what is remembered: verdicts of another one are not used any more."""
        self.freshness = Freshness.EXPIRED
        """Nothing is known before the first load."""
        self._source = source
        self._look_ms = max(1, revocation_ms // ACCESS_LOOKS_PER_REVOCATION)
        self._now_ms = now_ms
        self._is_embedded = is_embedded
        self._contents = _Contents()
        self._version: Version | None = None
        self._times = {"revocation_ms": revocation_ms, "stale_ms": stale_ms}
        self._knowledge: Knowledge | None = None
        self._verdicts: dict[Subjects, dict[str, int]] = {}
        self._granted: dict[tuple[Subjects, int, str], set[Name]] = {}
        self._passing: dict[Subjects, dict[Wanted, Passing]] = {}
        self._verdict_count = 0
        """Of all three together."""
        self._listeners: list[Callable[[], None]] = []
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Loads everything, then looks for changes until the end."""
        await self.refresh()
        task = asyncio.create_task(self._look_again())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def refresh(self) -> None:
        """Asks for what is newer, and takes it; also right behind a change that was made here."""
        # One at a time: what was asked before may not be put over what was heard since.
        async with self._turn:
            asked_ms = self._now_ms()
            if self._version is None or await self._source.version() != self._version:
                await self._take(await self._source.load(self._version))
        if self._knowledge is None:
            self._knowledge = Knowledge(**self._times, asked_ms=asked_ms)
        self._knowledge.heard(asked_ms)
        self._judge_freshness()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls it behind every change of the generation; what is returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- what is known ----------------------------------------------------------------------------

    @property
    def version(self) -> Version | None:
        return self._version

    def rights(
        self,
        principal: str,
        proof: Proof,
        *,
        is_local: bool,
        claimed: frozenset[str] = frozenset(),
    ) -> Rights:
        """Of one connection; `is_local` as for `built_in_groups`, `claimed` as its proof gives them."""
        built_in = built_in_groups(principal, proof, is_local=is_local)
        return Rights(self, principal, proof, built_in, claimed)

    @property
    def grants(self) -> Grants:
        """The rows themselves, for a room that needs more of them than a verdict. Not to be kept:
        another generation
        has others."""
        return self._contents.grants

    def groups_of(self, principal: str) -> frozenset[str]:
        return frozenset(self._contents.groups.get(principal, ()))

    def user(self, name: str) -> UserState | None:
        return self._contents.users.get(name)

    def token(self, token_hash: bytes) -> TokenRow | None:
        return self._contents.tokens.get(token_hash)

    def is_taken(self, principal: str, proof: Proof, mark: bytes) -> bool | None:
        """Whether the password or token of a mark (`Identity.mark`) would be taken now; None where it is
        newer than this table. Of other proofs the catalog says nothing."""
        if proof not in (Proof.PASSWORD, Proof.TOKEN) or len(mark) < _MARK_VERSIONS.size:
            return True
        of_user, of_token = _MARK_VERSIONS.unpack_from(mark)
        if self._version is None or max(of_user, of_token) > self._version.number:
            return None
        user = self.user(principal)
        if user is None or user.is_disabled or user.version != of_user:
            return False
        token = mark[_MARK_VERSIONS.size :]
        return not token or token in self._contents.token_marks

    @property
    def quotas(self) -> Mapping[str, Mapping[str, int]]:
        """Of all subjects."""
        return self._contents.quotas

    def owner(self, known_as: str) -> str:
        """The principal of an owner that may be known by an old name."""
        return self._contents.owners.get(known_as, known_as)

    def mapped(self, known_as: str) -> str:
        """The principal that an operator said an old name is; empty if nobody did."""
        return self._contents.owners.get(known_as, "")

    def explain(self, subjects: Subjects, right: int, path: str) -> Explanation:
        return self._contents.grants.explain(subjects, right, path)

    def knows_rights_of(self, subjects: Subjects) -> bool:
        """False for nearly everybody while the catalog has been away for too long."""
        if self.freshness is not Freshness.EXPIRED:
            return True
        # Before the first load there is nothing to go on with, also not here.
        return self._is_embedded and LOOPBACK in subjects.groups and self._version is not None

    # --- for `Rights` -----------------------------------------------------------------------------

    def verdicts_of(self, subjects: Subjects) -> dict[str, int]:
        """What is remembered for these; shared by all connections of one principal."""
        found = self._verdicts.get(subjects)
        if found is None:
            self._count_verdict()
            found = self._verdicts[subjects] = {}
        return found

    def judge(self, subjects: Subjects, path: str, verdicts: dict[str, int]) -> int:
        """Finds a verdict and remembers it."""
        if len(verdicts) >= VERDICTS_KEPT_MAX:
            self._verdict_count -= len(verdicts)
            verdicts.clear()
        self._count_verdict()
        bits = verdicts[path] = self._contents.grants.rights_at(subjects, path)
        return bits

    def granted_of(self, subjects: Subjects, right: int, below: str) -> set[Name]:
        """Names below a path at which these were found to have a right; shared as verdicts are."""
        key = subjects, right, below
        found = self._granted.get(key)
        if found is None:
            self._count_verdict()
            found = self._granted[key] = set()
        return found

    def learn(self, granted: set[Name], names: Collection[Name]) -> None:
        """Remembers that they were granted."""
        before = len(granted)
        if before + len(names) > VERDICTS_KEPT_MAX:
            self._verdict_count -= before
            granted.clear()
            before = 0
        granted.update(names)
        self._count_verdict(len(granted) - before)

    def passing_of(self, subjects: Subjects) -> dict[Wanted, Passing]:
        """What is found by one look; shared as verdicts are. Its sets are those of `granted_of`, or `ALL`; by
        kinds of calls, so that they are few."""
        found = self._passing.get(subjects)
        if found is None:
            self._count_verdict()
            found = self._passing[subjects] = {}
        return found

    def everywhere(self, subjects: Subjects, path: str) -> int:
        return self._contents.grants.everywhere(subjects, path)

    def denies(self, subjects: Subjects, right: int, path: str) -> bool:
        return self._contents.grants.denies(subjects, right, path)

    def reaches(self, subjects: Subjects, right: int, below: str, apart: frozenset[str]) -> bool:
        return self._contents.grants.reaches(subjects, right, below, apart)

    def denies_within(self, subjects: Subjects, right: int, path: str) -> bool:
        return self._contents.grants.denies_within(subjects, right, path)

    def _count_verdict(self, count: int = 1) -> None:
        self._verdict_count += count
        if self._verdict_count > VERDICTS_OF_ALL_MAX:
            self._forget_verdicts()

    def _forget_verdicts(self) -> None:
        # Connections hold theirs until they are used again: emptied, and not only let go. Of `passing` they
        # do not even ask for the generation.
        for passing in self._passing.values():
            passing.clear()
        self._passing.clear()
        for verdicts in self._verdicts.values():
            verdicts.clear()
        self._verdicts.clear()
        for granted in self._granted.values():
            granted.clear()
        self._granted.clear()
        self._verdict_count = 0
        self.generation += 1

    # --- keeping it up to date --------------------------------------------------------------------

    async def _take(self, loaded: Loaded | None) -> None:
        if loaded is None:
            return
        if not loaded.is_whole and _size(loaded) > ACCESS_CHANGES_AT_ONCE_MAX:
            loaded = await self._source.load()
            assert loaded is not None
        if loaded.is_whole:
            if self._version is not None:
                log.warning("all rights are loaded anew", extra={"version": loaded.version.number})
            contents = _Contents()
            await in_slices(contents.built(loaded))
            self._contents = contents
        else:
            self._contents.change(loaded)
        self._version = loaded.version
        self._next_generation()

    async def _look_again(self) -> None:
        """One question at a time; whether what is known is too old is judged also while it is open."""
        asking: asyncio.Task[None] | None = None
        try:
            while True:
                await asyncio.sleep(self._look_ms / 1_000)
                if asking is None or asking.done():
                    asking = asyncio.create_task(self._ask())
                self._judge_freshness()
        finally:
            if asking is not None:
                asking.cancel()

    async def _ask(self) -> None:
        try:
            await self.refresh()
        except MoorlineError as error:
            log.debug("rights are not up to date", extra={"why": str(error)})
        except Exception:
            # The next look may have more luck; what is known expires, so nothing is granted by this.
            log.exception("rights could not be brought up to date")

    def _judge_freshness(self) -> None:
        assert self._knowledge is not None
        before, now = self.freshness, self._knowledge.freshness(self._now_ms())
        if now is before:
            return
        self.freshness = now
        if now is Freshness.FRESH:
            log.info("rights are up to date")
        else:
            log.warning("rights are not up to date", extra={"freshness": now.value})
        if Freshness.EXPIRED in (before, now):
            self._next_generation()

    def _next_generation(self) -> None:
        self._forget_verdicts()
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:
                log.exception("a listener failed at a change of rights")


def _size(loaded: Loaded) -> int:
    return len(loaded.removed) + len(loaded.grant_rows) + len(loaded.members) + len(loaded.quotas)


def _discard(groups: dict[str, set[str]], member: str, group: str) -> None:
    found = groups.get(member)
    if found is not None:
        found.discard(group)
        if not found:
            del groups[member]
