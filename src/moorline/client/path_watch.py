"""Room: client. Paths that come and go: what a resolver pushes about a glob, for as long as it is wanted.

    async with resolver.watch("/oslo/**") as changes:
        async for change in changes:
            if change.is_lost:      # a resolver was lost, or more changed than is kept: match again
                ...

A resolver that is lost is replaced by another member; that this happened is told by `is_lost`.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

import msgspec

from moorline.client.resolver_cluster import ResolverCluster
from moorline.errors import CallFailed, MoorlineError
from moorline.limits import READ_PAUSE_MS_MAX, READ_PAUSE_MS_MIN, WATCH_KEPT_MAX
from moorline.net.caller import Caller
from moorline.wire.message import Message
from moorline.wire.resolver import PathsChanged, PathsWatched, WatchPaths


class PathChange(msgspec.Struct, frozen=True):
    """What changed. With `is_lost` more may have: what matches is to be asked for again."""

    added: list[str]
    removed: list[str]
    is_lost: bool = False


class PathWatch:
    """Changes of what matches a glob, in order. Closed by the end of `async with`."""

    def __init__(self, cluster: ResolverCluster, glob: str) -> None:
        self._cluster = cluster
        self._glob = glob
        self._caller: Caller | None = None
        self._changes: deque[PathChange] = deque()
        self._news = asyncio.Event()
        self._member = cluster.chance.randrange(len(cluster.addresses))

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._caller is not None:
            self._caller.close("DONE", "the reader is done")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PathChange:
        while not self._changes:
            assert self._caller is not None, "a watch is used in `async with`"
            if not self._caller.is_open:
                await self._connect_again()
                return PathChange([], [], is_lost=True)
            self._news.clear()
            await self._news.wait()
        return self._changes.popleft()

    async def _connect_again(self) -> None:
        while True:
            try:
                await self._connect()
            except CallFailed:
                raise
            except MoorlineError:
                pause_ms = self._cluster.chance.randint(READ_PAUSE_MS_MIN, READ_PAUSE_MS_MAX)
                await asyncio.sleep(pause_ms / 1_000)
            else:
                return

    async def _connect(self) -> None:
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
            caller.lost.add_done_callback(lambda _: self._news.set())
            try:
                await caller.call(lambda call: WatchPaths(call, self._glob), PathsWatched)
            except MoorlineError as error:
                caller.close("DONE", "the reader is done")
                failed = error
                continue
            self._caller = caller
            return
        assert failed is not None
        raise failed

    def _pushed(self, messages: list[Message]) -> None:
        for message in messages:
            if not isinstance(message, PathsChanged):
                continue
            if len(self._changes) >= WATCH_KEPT_MAX:
                self._changes.clear()
                self._changes.append(PathChange([], [], is_lost=True))
            else:
                change = PathChange(message.added, message.removed, message.is_lost)
                self._changes.append(change)
        self._news.set()
