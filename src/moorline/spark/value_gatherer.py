"""Room: spark. The subscriber of a query that streams live values; it lives in the process of the query.

It follows all paths of a glob: those that there are, and those that come later. A path that nobody publishes
any more is left. What is named without `_` is for the thread of Spark; everything else happens on the loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence

from moorline.client.path_watch import PathWatch
from moorline.client.resolver import Resolver
from moorline.client.values.subscriber import Subscriber
from moorline.client.values.subscription import ValueSubscription
from moorline.errors import Denied, MoorlineError
from moorline.limits import (
    READ_PAUSE_MS_MAX,
    SPARK_FIRST_VALUES_MS_MAX,
    SPARK_PATHS_LOOK_MS,
    SPARK_UPDATES_KEPT,
    SPARK_UPDATES_PER_BATCH,
)
from moorline.spark.gathered import Gathered, ValueRow
from moorline.spark.loop_thread import LoopThread
from moorline.spark.options import Endpoint
from moorline.spark.value_reader import named, named_error, now_us, resolver_of

log = logging.getLogger("moorline.spark")


class ValueGatherer(LoopThread):
    """Gathers updates from its making on."""

    def __init__(self, endpoint: Endpoint, glob: str) -> None:
        super().__init__("moorline-gatherer")
        self._endpoint = endpoint
        self._glob = glob
        self._gathered = Gathered(SPARK_UPDATES_KEPT)
        self._handles: dict[str, ValueSubscription] = {}
        self._error: MoorlineError | None = None
        self._following: asyncio.Task[None] | None = None
        self._resolver: Resolver | None = None
        self._subscriber: Subscriber | None = None

    def begin_following(self) -> None:
        """Returns when there is a first value of each path, or when it was waited for long enough."""
        self.run(self._begin())

    def take(self) -> list[ValueRow]:
        """What has come since the last time; raises if a path is denied."""

        async def take() -> list[ValueRow]:
            if self._error is not None:
                raise self._error
            return self._gathered.take(SPARK_UPDATES_PER_BATCH)

        return self.run(take())

    def facts(self) -> dict[str, int]:
        """For the progress of a query."""

        async def told() -> dict[str, int]:
            return {
                "waiting": len(self._gathered),
                "conflated": self._gathered.conflated,
                "paths": len(self._handles),
                "silent": len(self._silent()),
            }

        return self.run(told())

    # --- on the loop ------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._resolver = resolver_of(self._endpoint)
        self._subscriber = Subscriber(
            self._endpoint.address, conflate=True, heard=self._heard, **self._endpoint.given()
        )
        await self._look()
        if self._error is not None:
            raise self._error
        self._following = asyncio.create_task(self._follow())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SPARK_FIRST_VALUES_MS_MAX / 1_000):
                for handle in list(self._handles.values()):
                    await handle.wait()
        if silent := self._silent():
            log.warning("no value yet of %d paths: %s", len(silent), named(silent))

    def _silent(self) -> list[str]:
        return [path for path, handle in self._handles.items() if not handle.is_alive]

    def _heard(self, path: str, value: object, publisher: bytes, is_first: bool) -> None:
        self._gathered.add(ValueRow(path, value, publisher.hex(), now_us(), is_first))

    async def _look(self) -> None:
        """Asks which paths there are."""
        assert self._resolver is not None
        found = await self._resolver.match(self._glob)
        self._leave(self._handles.keys() - set(found))
        await self._add(found)

    async def _add(self, paths: Sequence[str]) -> None:
        assert self._resolver is not None
        assert self._subscriber is not None
        new = [path for path in paths if path not in self._handles]
        if not new:
            return
        # One that is denied would be tried for ever: it is said now.
        outcomes = zip(new, await self._resolver.resolve_all(new), strict=True)
        denied = {path: one for path, one in outcomes if isinstance(one, Denied)}
        if denied:
            self._error = named_error(denied)
            return
        handles = self._subscriber.durable_subscribe_all(new)
        self._handles.update(zip(new, handles, strict=True))

    def _leave(self, paths: Iterable[str]) -> None:
        for path in paths:
            if (handle := self._handles.pop(path, None)) is not None:
                handle.drop()

    async def _follow(self) -> None:
        """Whatever resolvers do: what is subscribed goes on meanwhile."""
        assert self._resolver is not None
        while True:
            try:
                async with self._resolver.watch(self._glob) as changes:
                    await self._look()  # what came before the watch
                    while True:
                        await self._hear(changes)
            except MoorlineError as error:
                log.warning("which paths %s has is not known anew: %s", self._glob, error)
                await asyncio.sleep(READ_PAUSE_MS_MAX / 1_000)

    async def _hear(self, changes: PathWatch) -> None:
        """What came and went; and from time to time everything, since not all of it is told."""
        try:
            async with asyncio.timeout(SPARK_PATHS_LOOK_MS / 1_000):
                change = await anext(changes)
        except TimeoutError:
            await self._look()
            return
        if change.is_lost:
            await self._look()
            return
        self._leave(change.removed)
        await self._add(change.added)

    async def _say_goodbye(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if self._subscriber is not None:
            await self._subscriber.close()
        if self._resolver is not None:
            await self._resolver.close()
