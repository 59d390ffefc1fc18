"""Room: resolver. The role `resolver` of a node: what readers ask, and the parts behind it put together.

Paths of a batch are judged one by one, and each is answered by a code of its own: one that is not granted
never fails another. Before the resolver is ready, what it does not know is `NOT_READY`; lists, matches and
watches are so as a whole, but for what the cluster publishes of itself.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence

from moorline.access.guard import Declarations, each_by_itself, own
from moorline.access.judging import Judging
from moorline.catalog.catalog import NodeRow
from moorline.catalog.homes import HomeRow
from moorline.config.resolver import Resolver
from moorline.core.directory.glob import Glob
from moorline.core.directory.path import check_path, is_reserved
from moorline.core.directory.registry import Changed, Registry
from moorline.errors import Denied, NotFound, NotReady
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session, each
from moorline.net.slices import done, in_slices
from moorline.net.turns import Turns
from moorline.resolver.claimed_address import Dials
from moorline.resolver.cluster_entries import ClusterEntries
from moorline.resolver.delegations import Delegations
from moorline.resolver.finding import Finder
from moorline.resolver.holders import Judge
from moorline.resolver.listing import listing, matching
from moorline.resolver.publishers import Publishers, Refused
from moorline.resolver.rights import may_list
from moorline.resolver.taking import Bounds
from moorline.resolver.watches import Watches
from moorline.wire.message import Answer
from moorline.wire.resolver import (
    ListPaths,
    MatchPaths,
    PathsListed,
    PathsMatched,
    PathsResolved,
    PathsUnwatched,
    PathsWatched,
    ResolvePaths,
    UnwatchPaths,
    WatchPaths,
)

log = logging.getLogger("moorline.resolver")

RESOLVER_ID_BYTES = 16
PATHS_AT_ONCE = 100
"""Paths of a call that is answered where it is heard: well within a slice, also with several tokens each."""
READY_MORE_MS = 1_000
"""Beyond half a ttl, within which every publisher says something."""


class ResolverBroker:
    """One node's directory."""

    def __init__(
        self,
        settings: Resolver,
        nodes: Callable[[int], Awaitable[list[NodeRow]]],
        homes: Callable[[], Awaitable[dict[bytes, HomeRow]]],
        judge: Judge,
        refused: Refused,
        *,
        is_new: bool,
        rules: Sequence[str] = (),
        kerberos_rules: Sequence[str] = (),
    ) -> None:
        """`is_new`: nobody can have published here before, so that nobody is waited for."""
        self.id = secrets.token_bytes(RESOLVER_ID_BYTES)
        now_ms = monotonic_ms()
        delay_ms = 0 if is_new else settings.ttl_ms // 2 + READY_MORE_MS
        self.registry = Registry(ttl_ms=settings.ttl_ms, ready_at_ms=now_ms + delay_ms)
        self.watches = Watches(may_list)
        self.dials = Dials(self.id, timeout_ms=settings.proof_timeout_ms)
        self._delegations = Delegations(settings.parsed_delegations(), settings.ttl_ms)
        self.cluster = ClusterEntries(self.registry, nodes, homes, self.watches.tell)
        self._purge_wanted = asyncio.Event()
        self.finder = Finder(
            self.id,
            self.registry,
            self.cluster,
            self._delegations,
            settings.token_life_ms // 1_000,
            lambda: int(time.time()),
            random.Random(secrets.randbits(64)),
        )
        self.publishers = Publishers(
            self.id,
            self.registry,
            self.dials,
            self._delegations,
            Bounds(
                paths_max=settings.paths_max,
                publisher_paths_max=settings.publisher_paths_max,
                publishers_max=settings.publishers_max,
                principal_publishers_max=settings.principal_publishers_max,
            ),
            judge,
            refused,
            self.watches.tell,
            self._purge_wanted.set,
            token_life_ms=settings.token_life_ms,
            rules=rules,
            kerberos_rules=kerberos_rules,
        )
        self._refused = refused
        self._turns = Turns()
        self._judging = Judging(self.publishers.judging.all, self._turns.spawn)
        self._resolve_long = self._turns.spawned(self._resolve_in_slices)
        self._ticked_ms = now_ms

    def declared(self) -> Declarations:
        return {
            ResolvePaths: each_by_itself(self._resolve),
            ListPaths: each_by_itself(self._turns.spawned(self.list_paths)),
            MatchPaths: each_by_itself(self._turns.spawned(self._match)),
            WatchPaths: each_by_itself(each(self._watch)),
            UnwatchPaths: own(each(self._unwatch)),
            **self.publishers.declared(),
        }

    def close(self) -> None:
        self._turns.close()
        self.publishers.close()
        self.watches.close()

    def judge_soon(self) -> None:
        """Behind a change of rights: publishers ask again who of their subscribers may stay, and what they
        may not publish any more leaves."""
        self.publishers.rights_changed()
        self._judging.soon()

    # --- what readers ask -------------------------------------------------------------------------

    def _resolve(self, session: Session, calls: list[ResolvePaths]) -> Iterator[Answer]:
        """Short ones at once, since a task would cost as much as they do; long ones in slices."""
        long = [call for call in calls if len(call.paths) > PATHS_AT_ONCE]
        if long:
            yield from self._resolve_long(session, long)
        for call in calls:
            if len(call.paths) <= PATHS_AT_ONCE:
                steps = self.finder.resolving(session, call, monotonic_ms())
                yield self._answered(session, call, done(steps))

    async def _resolve_in_slices(self, session: Session, call: ResolvePaths) -> PathsResolved:
        steps = self.finder.resolving(session, call, monotonic_ms())
        answer = await in_slices(steps, session.rights.principal)
        return self._answered(session, call, answer)

    def _answered(
        self, session: Session, call: ResolvePaths, answer: PathsResolved
    ) -> PathsResolved:
        denied = (
            path
            for path, one in zip(call.paths, answer.found, strict=True)
            if one.code == Denied.code
        )
        if (path := next(denied, None)) is not None:
            self._refused(session, "ResolvePaths", path, Denied.code)
        return answer

    async def list_paths(self, session: Session, call: ListPaths) -> PathsListed:
        if call.path != "/":
            check_path(call.path)
        if call.after:
            check_path(call.after)
        if (referral := self._delegations.of(call.path)) is not None:
            return PathsListed(call.call, [], referrals=[referral])
        self._check_ready(call.path)
        steps = listing(
            self.registry, self._delegations, session.rights, call.path, call.after, call.count
        )
        page = await in_slices(steps, session.rights.principal)
        children = [(child.path, child.is_published, child.has_below) for child in page.children]
        return PathsListed(call.call, children, page.next, self._delegations.below(call.path))

    async def _match(self, session: Session, call: MatchPaths) -> PathsMatched:
        glob = Glob.parsed(call.glob)
        if call.after:
            check_path(call.after)
        if (referral := self._delegations.of(glob.root)) is not None:
            return PathsMatched(call.call, [], referrals=[referral])
        self._check_ready(glob.root)
        steps = matching(self.registry, session.rights, glob, call.after, call.count)
        page = await in_slices(steps, session.rights.principal)
        return PathsMatched(call.call, page.paths, page.next, self._delegations.below(glob.root))

    def _watch(self, session: Session, call: WatchPaths) -> PathsWatched:
        glob = Glob.parsed(call.glob)
        if (referral := self._delegations.of(glob.root)) is not None:
            return PathsWatched(call.call, [referral])
        self._check_ready(glob.root)
        self.watches.add(session, call.call, glob)
        return PathsWatched(call.call, self._delegations.below(glob.root))

    def _unwatch(self, session: Session, call: UnwatchPaths) -> PathsUnwatched:
        if not self.watches.remove(session, call.watch):
            raise NotFound(f"this connection has no watch of the number {call.watch}")
        return PathsUnwatched(call.call)

    def _check_ready(self, root: str) -> None:
        if not self.registry.is_ready(monotonic_ms()) and not is_reserved(root):
            left_ms = self.registry.ready_at_ms - monotonic_ms()
            raise NotReady(
                f"this resolver has just started and waits for its publishers for {left_ms} ms yet: ask "
                "another one, or try again"
            )

    # --- upkeep -----------------------------------------------------------------------------------

    async def tick_forever(self) -> None:
        while True:
            await asyncio.sleep(self.registry.tick_ms / 1_000)
            self.tick(monotonic_ms())

    def tick(self, now_ms: int) -> None:
        # A process that was stopped has heard nobody, and nobody is dead for that.
        late_ms = now_ms - self._ticked_ms - self.registry.tick_ms
        self._ticked_ms = now_ms
        if late_ms > self.registry.ttl_ms // 2:
            log.warning("this resolver stood still", extra={"late_ms": late_ms})
            self.registry.slept(late_ms, now_ms)
        for one in self.registry.tick(now_ms):
            log.info(
                "a publisher was silent for too long",
                extra={"address": one.claim.address, "principal": one.claim.principal},
            )
        if self.registry.has_leaving:
            self._purge_wanted.set()

    async def purge_forever(self) -> None:
        while True:
            await self._purge_wanted.wait()
            self._purge_wanted.clear()
            await in_slices(self._purging())

    def _purging(self) -> Generator[None]:
        for changed in self.registry.purging():
            self._told(changed)
            yield

    def _told(self, changed: Changed) -> None:
        self.watches.tell(changed)
