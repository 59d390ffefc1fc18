"""Room: client. A subscriber of live values.

    async with moorline.Subscriber("moor://127.0.0.1:7411") as subscriber:
        temperature = await subscriber.subscribe("/oslo/temperature")
        print(temperature.value)

`subscribe` goes through the flow once: resolver, choice of a publisher, subscription; and ends with its
publisher. `durable_subscribe` goes through it again and again, for as long as it is wanted. Both share
connections: one for each publisher. Design: docs/design/resolver.md.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Unpack

import msgspec

from moorline.client.credentials import ClientIdentity, IdentityOptions
from moorline.client.resolver import Resolver
from moorline.client.values.handles import Handles, Heard
from moorline.client.values.link import LinkSettings, PublisherLink
from moorline.client.values.subscription import ValueSubscription
from moorline.client.values.subscription_steps import SubscriptionSteps, done_or_closed, said
from moorline.core.directory.path import check_path
from moorline.core.values.choice import Candidate, Failures
from moorline.core.values.durable import Durable
from moorline.core.values.durable_events import (
    AttemptFailed,
    Drop,
    Ended,
    PublisherLost,
    Resolve,
    Resolved,
    ResolveFailed,
    Stop,
    SubscribeAt,
    Subscribed,
    TellAlive,
    TellDead,
    Unsubscribe,
    Want,
)
from moorline.errors import CallFailed, MoorlineError, SubscriptionEnded, Unreachable
from moorline.limits import (
    HELLO_TIMEOUT_MS,
    KEEPALIVE_MS,
    VALUE_BATCHES_MAX,
    VALUE_DEAD_MS,
)
from moorline.net.clock import monotonic_ms
from moorline.net.driver import Driver

log = logging.getLogger("moorline.client")


class SubscriberSettings(msgspec.Struct, frozen=True):
    """What rarely differs."""

    dead_ms: int = VALUE_DEAD_MS
    """A publisher that says nothing for so long is lost."""
    timeout_ms: int = HELLO_TIMEOUT_MS
    """To connect to a publisher, and to have its answer."""
    keepalive_ms: int = KEEPALIVE_MS


class ValueBatch(msgspec.Struct, frozen=True):
    """One batch of one publisher, whole. `paths` are those of this subscriber, as the updates have them."""

    publisher: bytes
    paths: list[str]
    values: list[Any]


class Subscriber:
    """Subscribes to values, wherever they are published."""

    def __init__(
        self,
        resolvers: str | Sequence[str],
        *,
        conflate: bool = False,
        settings: SubscriberSettings | None = None,
        heard: Heard | None = None,
        **identity: Unpack[IdentityOptions],
    ) -> None:
        """With `conflate` a slow reader gets the latest value of each path in place of all of them. `heard`
        is called with every value of every subscription, first ones too, and must return at once. `proof`,
        `ca`, `certificate` and `key` say who we are, to resolvers and publishers (`ClientIdentity`)."""
        used = settings or SubscriberSettings()
        self.is_conflating = conflate
        self._settings = LinkSettings(
            used.timeout_ms,
            used.keepalive_ms,
            used.dead_ms,
            ClientIdentity(**identity),
            conflate,
        )
        self._resolver = Resolver(resolvers, **identity)
        self._failures = Failures()
        self._handles = Handles(heard)
        self._steps = SubscriptionSteps(
            self._resolver,
            self._settings,
            self._failures,
            updated=self._updated,
            ended=self._ended,
            lost=self._lost,
            is_held=self._handles.has,
        )
        self._subscribing: dict[str, asyncio.Task[dict[str, MoorlineError]]] = {}
        self._batches: list[asyncio.Queue[ValueBatch | None]] = []
        self._wanted: list[str] = []
        self._is_closed = False
        self._durable = Driver(
            Durable("durable subscriptions", Random(secrets.randbits(64)), self._failures),
            {
                Resolve: self._resolve,
                SubscribeAt: self._subscribe_at,
                Unsubscribe: self._unsubscribe,
                TellAlive: self._tell_alive,
                TellDead: self._tell_dead,
            },
            self._broken,
        )

    # --- opening and closing ----------------------------------------------------------------------

    async def __aenter__(self) -> "Subscriber":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Whoever waits for something of it hears that it is over."""
        self._is_closed = True
        self._durable.post(Stop())
        self._durable.close()
        for task in self._subscribing.values():
            task.cancel()
        self._steps.close()
        for handle in self._handles.everybody():
            handle.died("the subscriber is closed", is_over=True)
        for queue in self._batches:
            _put(queue, None)
        await self._resolver.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise SubscriptionEnded("this subscriber is closed: open another one")

    # --- what users do ----------------------------------------------------------------------------

    async def subscribe(self, path: str) -> ValueSubscription:
        """Goes through the flow once: the value as it is now, or an error that says what failed."""
        (found,) = await self.subscribe_all([path])
        if isinstance(found, MoorlineError):
            raise found
        return found

    async def subscribe_all(self, paths: Sequence[str]) -> list[ValueSubscription | MoorlineError]:
        """Many at once: for each its subscription, or why there is none. One never fails the others."""
        self._check_open()
        for path in paths:
            check_path(path)
        try:
            with self._handles.awaited(paths):
                errors = await self._subscribe_missing(dict.fromkeys(paths))
                return [self._found(path, errors) for path in paths]
        finally:
            # Who was cancelled has no handle: what came for it alone is left.
            self._leave_unwanted(paths)

    async def _subscribe_missing(self, paths: Iterable[str]) -> dict[str, MoorlineError]:
        missing = [path for path in paths if path not in self._handles]
        # What a durable one wants is on its way already: there is one subscription for a path.
        kept = [path for path in missing if self._handles.is_kept(path)]
        asked = [path for path in missing if not self._handles.is_kept(path)]
        new = [path for path in asked if path not in self._subscribing]
        if new:
            # Two that want one path at a time make one request.
            task = asyncio.create_task(self._subscribe_once(new))
            self._subscribing.update(dict.fromkeys(new, task))
        errors: dict[str, MoorlineError] = {}
        for task in {self._subscribing[path] for path in asked}:
            errors.update(await done_or_closed(task))
        errors.update(await self._wait_for(kept))
        return errors

    def _found(
        self, path: str, errors: dict[str, MoorlineError]
    ) -> ValueSubscription | MoorlineError:
        if path not in self._handles:
            lost = f"{path}: its publisher was lost at once: subscribe again"
            return errors.get(path, Unreachable(lost))
        handle = ValueSubscription(self, path, is_durable=False)
        self._handles.add(handle)
        return handle

    async def _wait_for(self, paths: Sequence[str]) -> dict[str, MoorlineError]:
        """Gives durable subscriptions the time of a try, all of them the same one."""
        errors: dict[str, MoorlineError] = {}
        until_ms = monotonic_ms() + self._settings.timeout_ms
        for path in paths:
            handle = next((one for one in self._handles.of(path) if one.is_durable), None)
            if handle is None:
                errors[path] = Unreachable(f"{path} was dropped meanwhile: subscribe again")
                continue
            try:
                await handle.wait(max(0, until_ms - monotonic_ms()) / 1_000)
            except TimeoutError:
                errors[path] = Unreachable(f"{path}: {handle.why}")
            except MoorlineError as error:
                errors[path] = error
        return errors

    def durable_subscribe(self, path: str) -> ValueSubscription:
        """Subscribed from now on, whatever happens to publishers and resolvers, until it is dropped."""
        self._check_open()
        check_path(path)
        handle = ValueSubscription(self, path, is_durable=True)
        self._handles.add(handle)
        if not self._wanted:
            # With what else is wanted in this turn of the loop: one batch.
            asyncio.get_running_loop().call_soon(self._want)
        self._wanted.append(path)
        return handle

    def durable_subscribe_all(self, paths: Sequence[str]) -> list[ValueSubscription]:
        return [self.durable_subscribe(path) for path in paths]

    async def batches(self) -> AsyncIterator[ValueBatch]:
        """All updates of all subscriptions, batch by batch, from now on; who is slow loses the oldest."""
        self._check_open()
        queue: asyncio.Queue[ValueBatch | None] = asyncio.Queue(VALUE_BATCHES_MAX)
        self._batches.append(queue)
        try:
            while (batch := await queue.get()) is not None:
                yield batch
        finally:
            self._batches.remove(queue)

    # --- what subscriptions ask -------------------------------------------------------------------

    def dropped(self, handle: ValueSubscription) -> None:
        self._handles.remove(handle)
        if handle.is_durable and not self._handles.is_kept(handle.path):
            self._durable.post(Drop([handle.path]))
        self._leave_unwanted([handle.path])

    def reading(self, handle: ValueSubscription) -> None:
        self._handles.reading(handle)

    # --- the flow ---------------------------------------------------------------------------------

    async def _subscribe_once(self, paths: list[str]) -> dict[str, MoorlineError]:
        try:
            return await self._whole_flow(paths)
        except MoorlineError as error:
            return dict.fromkeys(paths, error)
        except TimeoutError:
            return dict.fromkeys(paths, Unreachable("no answer in time"))
        finally:
            for path in paths:
                self._subscribing.pop(path, None)
            self._leave_unwanted(paths)

    async def _whole_flow(self, paths: list[str]) -> dict[str, MoorlineError]:
        chosen, errors = await self._steps.choose(paths)
        # Side by side: a publisher that hangs keeps nobody waiting for the others.
        tries = [self._subscribe_chosen(instance, some) for instance, some in chosen.items()]
        for failed in await asyncio.gather(*tries):
            errors.update(failed)
        return errors

    async def _subscribe_chosen(
        self, instance: bytes, paths: list[str]
    ) -> dict[str, MoorlineError]:
        try:
            refused = await self._subscribe_there(instance, paths)
        except (MoorlineError, TimeoutError) as error:
            self._failures.note(instance, monotonic_ms())
            for path in paths:
                self._steps.tried(path, instance, has_failed=True)
            if isinstance(error, MoorlineError):
                return dict.fromkeys(paths, error)
            late = Unreachable(f"{self._steps.address_of(instance)}: no answer in time")
            return dict.fromkeys(paths, late)
        for path in paths:
            self._steps.tried(path, instance, has_failed=path in refused)
        return {
            path: CallFailed.of(code, f"{path}: {said(code)}") for path, code in refused.items()
        }

    async def _subscribe_there(self, instance: bytes, paths: Sequence[str]) -> dict[str, str]:
        """Subscribes at that publisher; which paths it refused, with the code."""
        asked = [path for path in paths if path not in self._handles]
        refused: dict[str, str] = {}
        if not asked:
            return refused
        try:
            async with self._steps.link_to(instance, self._handles.is_idle) as link:
                answers = await self._steps.subscribe(link, asked)
                for path, answer in zip(asked, answers, strict=True):
                    if answer.code:
                        refused[path] = answer.code
                    elif link.holds(answer.id) and not self._handles.arrived(path, link, answer.id):
                        # Dropped and wanted again, it came from two: the first one stays.
                        link.unsubscribe([answer.id])
        finally:
            for path in asked:
                self._steps.give_up(path)
        return refused

    def _leave_unwanted(self, paths: Sequence[str]) -> None:
        """Ends what nobody has and nobody waits for."""
        for path in paths:
            if self._handles.is_wanted(path) or path in self._subscribing:
                continue  # of what is on its way the end comes here again
            self._steps.give_up(path)
            if (found := self._handles.leave(path)) is not None:
                link, one = found
                link.unsubscribe([one])
                self._steps.leave(link, self._handles.is_idle)

    # --- what links tell --------------------------------------------------------------------------

    def _updated(self, link: PublisherLink, ids: Sequence[int], values: Sequence[Any]) -> None:
        if self._batches:
            batch = ValueBatch(link.instance, self._handles.paths_of(link, ids), list(values))
            for queue in self._batches:
                _put(queue, batch)
        self._handles.updated(link, ids, values)

    def _ended(self, link: PublisherLink, ids: Sequence[int], code: str) -> None:
        gone = self._handles.ended(link, ids)
        self._died(gone, said(code))
        self._durable.post(Ended(link.instance, gone, said(code)))
        self._steps.leave(link, self._handles.is_idle)

    def _lost(self, link: PublisherLink, why: str) -> None:
        self._steps.forget(link)
        self._died(self._handles.lost(link), why)
        self._durable.post(PublisherLost(link.instance, why))

    def _died(self, paths: Sequence[str], why: str) -> None:
        for path in paths:
            for handle in self._handles.of(path):
                handle.died(why, is_over=not handle.is_durable)
                if handle.is_over:
                    self.dropped(handle)

    # --- what the durable machine wants done ------------------------------------------------------

    def _want(self) -> None:
        # What was dropped within the same turn is wanted no more.
        wanted = [path for path in self._wanted if self._handles.is_kept(path)]
        self._wanted = []
        for path in wanted:
            if (task := self._subscribing.get(path)) is not None:
                # It is on its way by the other door: wanted again behind that.
                task.add_done_callback(partial(self._want_again, path))
        self._durable.post(Want([path for path in wanted if path not in self._subscribing]))

    def _want_again(self, path: str, _: "asyncio.Task[dict[str, MoorlineError]]") -> None:
        if self._handles.is_kept(path):
            self._durable.post(Want([path]))

    async def _resolve(self, effect: Resolve) -> Resolved | ResolveFailed:
        found: dict[str, Sequence[Candidate] | str] = {
            # What is subscribed already stays where it is, whoever wanted it first.
            path: [Candidate(self._handles.place_of(path)[0].instance, 0)]
            for path in effect.paths
            if path in self._handles
        }
        asked = [path for path in effect.paths if path not in found]
        try:
            found.update(await self._steps.candidates(asked))
        except MoorlineError as error:
            return ResolveFailed(effect.ask, str(error))
        # Dropped while it was asked for: nobody will use what came.
        self._leave_unwanted(asked)
        return Resolved(effect.ask, found)

    async def _subscribe_at(self, effect: SubscribeAt) -> Subscribed | AttemptFailed:
        try:
            refused = await self._subscribe_there(effect.instance, effect.paths)
        except TimeoutError:
            return AttemptFailed(effect.attempt, "the publisher did not answer in time")
        except MoorlineError as error:
            return AttemptFailed(effect.attempt, str(error))
        told = {path: said(code) for path, code in refused.items()}
        lost = {
            path: "its publisher was lost" for path in effect.paths if path not in self._handles
        }
        return Subscribed(effect.attempt, {**lost, **told})

    def _unsubscribe(self, effect: Unsubscribe) -> None:
        self._leave_unwanted(effect.paths)

    def _tell_alive(self, effect: TellAlive) -> None:
        """They have heard already, when the value came. What was lost or moved since, the machine hears now:
        else it would take it for alive forever."""
        moved = [path for path in effect.paths if self._instance_of(path) != effect.instance]
        if moved:
            self._durable.post(Ended(effect.instance, moved, "it is not subscribed there any more"))

    def _instance_of(self, path: str) -> bytes:
        return self._handles.place_of(path)[0].instance if path in self._handles else b""

    def _tell_dead(self, effect: TellDead) -> None:
        for path in effect.paths:
            for handle in self._handles.of(path):
                if not handle.is_alive:
                    handle.died(effect.why, is_over=False)

    def _broken(self, error: Exception) -> None:
        log.error("durable subscriptions broken by a mistake of ours: %s", error)


def _put(queue: "asyncio.Queue[ValueBatch | None]", batch: ValueBatch | None) -> None:
    """Who is slow loses the oldest."""
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(batch)
