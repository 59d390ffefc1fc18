"""Room: client. Paths that come and go: what resolvers push about a glob, for as long as it is wanted.

    async with resolver.watch("/oslo/**") as changes:
        async for change in changes:
            if change.is_lost:      # a resolver was lost, or more changed than is kept: match again
                ...

A resolver that is lost is replaced by another member; that this happened is told by `is_lost`. Clusters that
the first one refers to are watched too, each for what it answers for.

    PathWatch ─┬─ branch: our cluster           one connection, to whichever member takes the watch
               └─ branch: each referred one     tried for as long as the watch lasts
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

import msgspec

from moorline.client.resolver_cluster import NOT_SERVING, ResolverCluster
from moorline.config.addresses import listen_address
from moorline.core.directory.path import is_at_or_below
from moorline.errors import CallFailed, Malformed, MoorlineError
from moorline.limits import READ_PAUSE_MS_MAX, READ_PAUSE_MS_MIN, REFERRALS_MAX, WATCH_KEPT_MAX
from moorline.net.caller import Caller
from moorline.wire.message import Message
from moorline.wire.resolver import PathsChanged, PathsWatched, Referral, WatchPaths


class PathChange(msgspec.Struct, frozen=True):
    """What changed. With `is_lost` more may have: what matches is to be asked for again."""

    added: list[str]
    removed: list[str]
    is_lost: bool = False


class PathWatch:
    """Changes of what matches a glob, those of one cluster in order. Closed by the end of `async with`."""

    def __init__(self, cluster: ResolverCluster, glob: str) -> None:
        self.glob = glob
        self._home = Branch(self, cluster, "/")
        self._referred: dict[Referral, Branch] = {}
        self._changes: deque[PathChange] = deque()
        self._news = asyncio.Event()
        self._failed: MoorlineError | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._home.connect()
            self._home.keep()
            # What they refer to is watched as well before anybody counts on it. One that is away fails
            # nothing: it is tried again, and `is_lost` tells when it is there.
            while new := [one for one in self._referred.values() if not one.is_kept]:
                await asyncio.gather(*(one.try_once() for one in new))
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PathChange:
        assert self._home.is_kept, "a watch is used in `async with`"
        while not self._changes:
            if self._failed is not None:
                raise self._failed
            self._news.clear()
            await self._news.wait()
        return self._changes.popleft()

    # --- what branches tell -----------------------------------------------------------------------

    def put(self, change: PathChange) -> None:
        if len(self._changes) >= WATCH_KEPT_MAX:
            self._changes.clear()
            change = PathChange([], [], is_lost=True)
        self._changes.append(change)
        self._news.set()

    def fail(self, error: MoorlineError) -> None:
        self._failed = error
        self._news.set()

    def referred(self, branch: "Branch", referrals: list[Referral]) -> None:
        """What a cluster refers to now, in place of what it did before."""
        # Known by path and addresses: a ring of clusters comes to an end.
        told = {msgspec.structs.replace(one, ttl_ms=0): one for one in referrals}
        for known in [one for one in self._referred if one not in told]:
            if self._referred[known].referrer is branch:
                self._referred.pop(known).close()
        for known in told:
            if known not in self._referred and len(self._referred) < REFERRALS_MAX:
                found = Branch(self, branch.cluster_of(known), known.path, branch)
                self._referred[known] = found
                if branch.is_kept:
                    # It came later: our cluster has other settings by now.
                    found.keep()

    def _close(self) -> None:
        for branch in (self._home, *self._referred.values()):
            branch.close()


class Branch:
    """The part of one cluster: what changes at and below a path, told by one of its members."""

    def __init__(
        self,
        watch: PathWatch,
        cluster: ResolverCluster,
        root: str,
        referrer: "Branch | None" = None,
    ) -> None:
        self.referrer = referrer
        self._watch = watch
        self._cluster = cluster
        self._root = root
        self._caller: Caller | None = None
        self._member = cluster.chance.randrange(len(cluster.addresses))
        self._keeping: asyncio.Task[None] | None = None

    @property
    def is_kept(self) -> bool:
        return self._keeping is not None

    def cluster_of(self, referral: Referral) -> ResolverCluster:
        try:
            addresses = [listen_address(text) for text in referral.addresses]
        except ValueError as error:
            raise Malformed(f"the referral for {referral.path}: {error}") from error
        if not addresses:
            raise Malformed(f"the referral for {referral.path} names nobody")
        return ResolverCluster(addresses, self._cluster.link)

    async def try_once(self) -> None:
        """Connects if that can be; in any case it is kept from now on."""
        try:
            await self.connect()
        except CallFailed as error:
            if not isinstance(error, NOT_SERVING):
                raise
        except MoorlineError:
            pass
        self.keep()

    def keep(self) -> None:
        self._keeping = asyncio.create_task(self._keep())

    def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        if self._caller is not None:
            self._caller.close("DONE", "the reader is done")

    async def _keep(self) -> None:
        while True:
            if self._caller is not None:
                await asyncio.wait([self._caller.lost])
            try:
                await self._connect_again()
            except MoorlineError as error:
                self._watch.fail(error)
                return
            self._watch.put(PathChange([], [], is_lost=True))

    async def _connect_again(self) -> None:
        while True:
            try:
                await self.connect()
            except MoorlineError as error:
                # What all of them say, and will say again, is for the user; who has just started, is not.
                if isinstance(error, CallFailed) and not isinstance(error, NOT_SERVING):
                    raise
                pause_ms = self._cluster.chance.randint(READ_PAUSE_MS_MIN, READ_PAUSE_MS_MAX)
                await asyncio.sleep(pause_ms / 1_000)
            else:
                return

    async def connect(self) -> None:
        """At the first member that takes it, each tried once; raises what the last one said."""
        failed: MoorlineError | None = None
        for _ in self._cluster.addresses:
            self._member = (self._member + 1) % len(self._cluster.addresses)
            address = self._cluster.addresses[self._member]
            try:
                caller = await self._cluster.link.opened(address, self._pushed)
            except MoorlineError as error:
                failed = error
                continue
            try:
                answer = await caller.call(
                    lambda call: WatchPaths(call, self._watch.glob), PathsWatched
                )
                self._watch.referred(self, answer.referrals)
            except MoorlineError as error:
                caller.close("DONE", "the reader is done")
                failed = error
                continue
            except BaseException:
                caller.close("DONE", "the reader is done")
                raise
            self._caller = caller
            return
        assert failed is not None
        raise failed

    def _pushed(self, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, PathsChanged):
                change = PathChange(
                    self._own(message.added), self._own(message.removed), message.is_lost
                )
                if change.added or change.removed or change.is_lost:
                    self._watch.put(change)

    def _own(self, paths: list[str]) -> list[str]:
        """Those that the cluster answers for: others it may have, and nobody would find them there."""
        return [path for path in paths if is_at_or_below(path, self._root)]
