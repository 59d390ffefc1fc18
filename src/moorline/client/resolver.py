"""Room: client. The resolver as its readers ask it: where paths are, who publishes them, and what one may.

    async with Resolver("moor://host1,host2") as resolver:
        found = await resolver.resolve("/oslo/temperature")      its publishers, with a token for each
        await resolver.match("/oslo/**")                         published paths
        async with resolver.watch("/oslo/**") as changes: …      what comes and goes from now on

Any resolver of the list answers; paths of other clusters are asked for there (referrals). Design:
docs/design/resolver.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, Unpack

import msgspec

from moorline.client.credentials import ClientIdentity, IdentityOptions
from moorline.client.path_watch import PathWatch
from moorline.client.resolution import Resolution, check_referral, resolution
from moorline.client.resolver_cluster import OnPage, ReaderLink, ResolverCluster
from moorline.config.addresses import RESOLVERS_FORM, Address, listen_address, resolver_addresses
from moorline.core.directory.glob import Glob
from moorline.core.directory.path import is_at_or_below, parent_of
from moorline.errors import (
    BadPath,
    CallFailed,
    ConfigError,
    Denied,
    Malformed,
    MoorlineError,
    NotFound,
    NotReady,
    Referred,
    RightsUnknown,
    TooLarge,
)
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    PATHS_PER_CALL_MAX,
    READ_ANSWER_MS,
    REFERRALS_MAX,
    RESOLVER_CLUSTERS_KEPT_MAX,
)
from moorline.net.caller import Caller
from moorline.net.clock import monotonic_ms
from moorline.wire.resolver import (
    ListPaths,
    MatchPaths,
    PathsListed,
    PathsMatched,
    PathsResolved,
    Referral,
    ResolvePaths,
)


class ListedPath(msgspec.Struct, frozen=True):
    """A child of a path."""

    path: str
    is_published: bool
    has_below: bool


Outcome = Resolution | MoorlineError
AskCluster = Callable[[ResolverCluster, Caller, int, OnPage], Awaitable[bool]]


class Resolver:
    """Asks the resolvers of a list, one after the other (core/directory/read_batch.py)."""

    def __init__(
        self,
        resolvers: str | Sequence[str],
        *,
        answer_ms: int = READ_ANSWER_MS,
        connect_ms: int = HELLO_TIMEOUT_MS,
        **identity: Unpack[IdentityOptions],
    ) -> None:
        """`answer_ms` is the least time that a resolver has for its next answer before the next one is
        asked, `connect_ms` the time for a connection. `proof`, `ca`, `certificate` and `key` say who we
        are there (`ClientIdentity`)."""
        self._link = ReaderLink(ClientIdentity(**identity), answer_ms, connect_ms)
        self._home = ResolverCluster(resolvers_of(resolvers), self._link)
        self._clusters: dict[tuple[str, ...], ResolverCluster] = {}
        """Those that we were referred to, the one that was used last at the end."""
        self._referrals: dict[str, tuple[Referral, int]] = {}
        """By their paths, with the time until which they count."""

    @classmethod
    def by(cls, link: ReaderLink, resolvers: str | Sequence[str]) -> Self:
        """One that connects as others do."""
        one = link.identity
        return cls(
            resolvers,
            answer_ms=link.answer_ms,
            connect_ms=link.connect_ms,
            proof=one.proof,
            **one.files(),
        )

    @property
    def addresses(self) -> tuple[Address, ...]:
        return self._home.addresses

    async def resolve(self, path: str) -> Resolution:
        """Where a path is; raises what is said of it: NotFound, Denied, NotReady, BadPath."""
        (found,) = await self.resolve_all([path])
        if isinstance(found, MoorlineError):
            raise found
        return found

    async def resolve_all(self, paths: Sequence[str]) -> list[Outcome]:
        """In their order. A path that is not found, denied or not ready is an error in its place; only
        where no resolver answers for a batch does it raise."""
        outcomes: dict[str, Outcome] = {}
        waiting = list(dict.fromkeys(paths))
        for _ in range(REFERRALS_MAX + 1):
            groups: dict[ResolverCluster, list[str]] = {}
            for path in waiting:
                groups.setdefault(self._cluster_for(path), []).append(path)
            answered = await asyncio.gather(
                *(self._ask(cluster, asked, outcomes) for cluster, asked in groups.items())
            )
            waiting = [path for referred in answered for path in referred]
            if not waiting:
                break
        await self._forget_clusters()
        for path in waiting:
            outcomes[path] = Referred(
                f"{path}: more than {REFERRALS_MAX} clusters refer to each other: see resolver.delegations"
            )
        return [outcomes[path] for path in paths]

    async def children(self, path: str = "/") -> list[ListedPath]:
        """The children of a path that we may list, in their order."""
        found: dict[str, ListedPath] = {}

        async def pages(caller: Caller, _: int, on_page: OnPage) -> bool:
            after = ""
            while True:
                page = await caller.call(partial(ListPaths, path=path, after=after), PathsListed)
                on_page()
                self._remember(page.referrals)
                for name, is_published, has_below in page.children:
                    found[name] = ListedPath(name, is_published, has_below)
                if not (after := _next(after, page.next)):
                    return False

        # Who answers for it may be known only behind the first question.
        for _ in range(REFERRALS_MAX + 1):
            cluster = self._cluster_for(path)
            await cluster.run(1, PATHS_PER_CALL_MAX, pages)
            if self._cluster_for(path) is cluster:
                break
        return list(found.values())

    async def match(self, glob: str) -> list[str]:
        """The published paths that match and that we may list, in their order."""
        found: dict[str, None] = {}

        async def pages(cluster: ResolverCluster, caller: Caller, _: int, on_page: OnPage) -> bool:
            after = ""
            while True:
                page = await caller.call(partial(MatchPaths, glob=glob, after=after), PathsMatched)
                on_page()
                self._remember(page.referrals)
                # What a cluster has outside of what it answers for, nobody would find there.
                found.update(
                    (path, None) for path in page.paths if self._cluster_for(path) is cluster
                )
                if not (after := _next(after, page.next)):
                    return False

        await self._everywhere(Glob.parsed(glob).root, pages)
        return sorted(found, key=lambda one: one.split("/"))

    def watch(self, glob: str) -> PathWatch:
        """What comes and goes from now on, of what matches and we may list; in other clusters too, as far as
        ours refers to them."""
        return PathWatch(self._home, glob)

    async def close(self) -> None:
        for cluster in (self._home, *self._clusters.values()):
            await cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- batches ----------------------------------------------------------------------------------

    async def _ask(
        self, cluster: ResolverCluster, paths: list[str], outcomes: dict[str, Outcome]
    ) -> list[str]:
        """Has them answered by a cluster; those that it refers to another one."""
        batch = _Batch(paths, outcomes, self._remember)
        try:
            await cluster.run(len(batch.parts), len(paths), batch.ask)
        except MoorlineError as error:
            if cluster is self._home:
                raise
            # One cluster that is away fails nothing that others have.
            for path in paths:
                outcomes.setdefault(path, error)
        return batch.referred

    async def _everywhere(self, root: str, ask: AskCluster) -> None:
        """Asks our cluster, and all that it refers to for something at, above or below a path."""
        asked: set[ResolverCluster] = set()
        waiting = [self._home]
        while waiting:
            cluster = waiting.pop()
            if cluster in asked or len(asked) > REFERRALS_MAX:
                continue
            asked.add(cluster)
            await cluster.run(1, PATHS_PER_CALL_MAX, partial(ask, cluster))
            waiting += [
                self._cluster_of(referral)
                for referral in self._known_referrals()
                if is_at_or_below(root, referral.path) or is_at_or_below(referral.path, root)
            ]

    # --- referrals --------------------------------------------------------------------------------

    def _remember(self, referrals: Iterable[Referral]) -> None:
        for referral in referrals:
            until_ms = monotonic_ms() + referral.ttl_ms
            self._referrals[referral.path] = (referral, until_ms)

    def _known_referrals(self) -> list[Referral]:
        now_ms = monotonic_ms()
        self._referrals = {
            path: known for path, known in self._referrals.items() if known[1] > now_ms
        }
        return [referral for referral, _ in self._referrals.values()]

    def _cluster_for(self, path: str) -> ResolverCluster:
        """Of the nearest referral at or above a path; ours where there is none."""
        if not self._referrals or not path.startswith("/"):
            return self._home
        now_ms = monotonic_ms()
        while path != "/":
            known = self._referrals.get(path)
            if known is not None and known[1] > now_ms:
                return self._cluster_of(known[0])
            path = parent_of(path)
        return self._home

    def _cluster_of(self, referral: Referral) -> ResolverCluster:
        key = referral.addresses
        cluster = self._clusters.pop(key, None)
        if cluster is None:
            try:
                addresses = [listen_address(text) for text in key]
            except ValueError as error:
                raise Malformed(f"the referral for {referral.path}: {error}") from error
            if not addresses:
                raise Malformed(f"the referral for {referral.path} names nobody")
            cluster = ResolverCluster(addresses, self._link)
        self._clusters[key] = cluster
        return cluster

    async def _forget_clusters(self) -> None:
        while len(self._clusters) > RESOLVER_CLUSTERS_KEPT_MAX:
            oldest = next(iter(self._clusters))
            await self._clusters.pop(oldest).close()


class _Batch:
    """The paths of one batch at one cluster, in parts, and what is answered to them."""

    def __init__(
        self,
        paths: list[str],
        outcomes: dict[str, Outcome],
        remember: Callable[[Iterable[Referral]], None],
    ) -> None:
        self.parts = [
            paths[start : start + PATHS_PER_CALL_MAX]
            for start in range(0, len(paths), PATHS_PER_CALL_MAX)
        ]
        self.referred: list[str] = []
        self._outcomes = outcomes
        self._remember = remember

    async def ask(self, caller: Caller, part: int, on_page: OnPage) -> bool:
        """Only for what is not answered yet, or weakly; whether something is weak still."""
        wanted = [
            path
            for path in self.parts[part]
            if isinstance(self._outcomes.get(path, NotReady("")), NotReady)
        ]
        await self._resolve(caller, wanted, on_page)
        return any(isinstance(self._outcomes.get(path), NotReady) for path in wanted)

    async def _resolve(self, caller: Caller, paths: list[str], on_page: OnPage) -> None:
        try:
            answer = await caller.call(lambda call: ResolvePaths(call, paths), PathsResolved)
        except TooLarge:
            # Many publishers with long names: in halves they fit.
            if len(paths) < 2:
                raise
            half = len(paths) // 2
            on_page()
            await self._resolve(caller, paths[:half], on_page)
            on_page()
            await self._resolve(caller, paths[half:], on_page)
            return
        if len(answer.found) != len(paths):
            raise Malformed(f"{len(answer.found)} answers for {len(paths)} paths")
        self._remember(answer.referrals)
        for path, found in zip(paths, answer.found, strict=True):
            if found.code == Referred.code:
                check_referral(answer, found.referral, path)
                self.referred.append(path)
            elif found.code:
                self._outcomes[path] = _error_of(path, found.code)
            else:
                self._outcomes[path] = resolution(answer, path, found)


def resolvers_of(resolvers: str | Sequence[str]) -> list[Address]:
    """The addresses of a list, each once."""
    texts = [resolvers] if isinstance(resolvers, str) else list(resolvers)
    found: list[Address] = []
    for text in texts:
        try:
            found += [one for one in resolver_addresses(text) if one not in found]
        except ValueError as error:
            raise ConfigError(
                f"{text!r} names no resolvers: {error}; accepted: {RESOLVERS_FORM}"
            ) from error
    if not found:
        raise ConfigError(f"no resolver is named; accepted: {RESOLVERS_FORM}")
    return found


_TEXTS = {
    NotFound.code: "nobody publishes it: is it spelled right, and does its publisher run?",
    Denied.code: "neither s (subscribe) nor w (write) is granted there: see `moor grant add`",
    NotReady.code: "the resolvers have just started and wait for their publishers: try again",
    RightsUnknown.code: "the resolver has not heard from its catalog for long and knows nobody's rights",
    BadPath.code: "it is no path: those begin with /, and no level is empty",
}


def _error_of(path: str, code: str) -> MoorlineError:
    return CallFailed.of(code, f"{path}: {_TEXTS.get(code, 'it was refused')}")


def _next(before: str, after: str) -> str:
    if after and after == before:
        raise Malformed("a page that begins where the one before it did")
    return after
