"""What the processes of the value benchmark do: publish, subscribe, and ask the resolver, by the library.

A publisher floods in batches as fast as its subscribers take them: a commit waits for room. A subscriber
counts the batches that it is given. Both tell when, by the clock that all processes of a machine share.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.queue_client import Counting
from bench.traffic import Traffic
from moorline.client.credentials import NO_PROOF, ClientProof, KerberosCredentials
from moorline.client.resolution import Resolution
from moorline.client.resolver import Resolver
from moorline.client.values.publisher import Publisher
from moorline.client.values.subscriber import Subscriber
from moorline.client.values.subscription import ValueSubscription
from moorline.config.addresses import Address, listen_address
from moorline.limits import HELLO_TIMEOUT_MS, PATHS_PER_CALL_MAX
from moorline.net.caller import Caller, open_caller
from moorline.wire.frame import frame
from moorline.wire.message import Message
from moorline.wire.resolver import (
    PathsResolved,
    PathsUnpublished,
    ResolvePaths,
    UnpublishPaths,
)

COMMIT_S = 30.0
WAIT_S = 150.0
"""What has not come by then will not."""

AT_ONCE = 8
"""Calls of the raw client under way at once."""

ASKED_AT_ONCE = 100_000
"""Paths that the library is asked for in one call."""

now_ns = time.monotonic_ns


async def when(is_so: Callable[[], bool], within_s: float) -> int:
    """The time when it was, looked at every millisecond."""
    end = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within_s} s")
        await asyncio.sleep(0.001)
    return now_ns()


class Way(msgspec.Struct, frozen=True):
    """How values travel from the publisher to the subscriber, and how both prove themselves."""

    name: str
    ca: Path | None = None
    certificate: Path | None = None
    service_keytab: Path | None = None
    service: str = ""
    keytab: Path | None = None
    node_service: str = ""

    @property
    def proof(self) -> ClientProof:
        if self.keytab is None:
            return NO_PROOF
        given = KerberosCredentials(keytab=self.keytab, service=self.node_service)
        return ClientProof(credentials=given)


def path_of(number: int) -> str:
    """38 characters, a thousand to a branch."""
    return f"/bench/values/site-{number // 1_000:05}/sensor-{number:07}"


def value_of(number: int) -> bytes:
    """16 bytes."""
    return b"%016d" % number


class PublisherRole:
    """One publisher."""

    def __init__(self) -> None:
        self._traffic = Traffic()
        self._ids: list[int] = []
        self._floods = 0

    async def open(self, resolvers: list[str], way: Way) -> None:
        made = _Counted(
            resolvers,
            listen="tls://127.0.0.1:0" if way.certificate else "tcp://127.0.0.1:0",
            proof=way.proof,
            ca=None,
            certificate=way.certificate,
            keytab=way.service_keytab,
            service=way.service,
        )
        made.traffic = self._traffic
        self._publisher: Publisher = await made.open()

    async def publish(self, first: int, count: int) -> float:
        """Seconds until every resolver has them."""
        started = time.perf_counter()
        values = ((path_of(number), value_of(number)) for number in range(first, first + count))
        self._ids += [one.id for one in self._publisher.publish_all(values)]
        await self.current()
        return time.perf_counter() - started

    async def current(self) -> int:
        """When every resolver had all that is published."""
        publisher = self._publisher
        await publisher.replicated()
        return await when(lambda: all(one.is_current for one in publisher.members), WAIT_S)

    async def flood(self, seconds: float, batch: int) -> tuple[int, int]:
        """Batch upon batch; when it began, and how many updates there were."""
        publisher, ids = self._publisher, self._ids[:batch]
        self._floods += 1
        values = [value_of(number) for number in range(batch)]
        last = [value_of(self._floods) for _ in ids]
        began, done = now_ns(), 0
        end = began + seconds * 1e9
        while now_ns() < end:
            publisher.update_all(ids, values)
            await publisher.commit(COMMIT_S)
            done += batch
        publisher.update_all(ids, last)
        await publisher.commit(COMMIT_S)
        return began, done + batch

    async def tick(self, count: int, per_s: int) -> None:
        """Commits of one, each with the time of its own."""
        started = time.perf_counter()
        for sent in range(count):
            await asyncio.sleep(max(0, started + sent / per_s - time.perf_counter()))
            self._publisher.update_all(self._ids[:1], [now_ns()])
            await self._publisher.commit(COMMIT_S)

    async def lose(self, numbers: list[int]) -> None:
        """A resolver forgets these, and we do not know of it."""
        (member, *_) = self._publisher.judges()
        paths = [path_of(number) for number in numbers]
        await member.asked(partial(UnpublishPaths, paths=paths), PathsUnpublished)

    async def bytes(self) -> int:
        """To and from the resolvers so far."""
        return self._traffic.bytes

    async def close(self) -> None:
        """Nobody finds it any more, and the next one is found alone."""
        await self._publisher.close()


class _Counted(Publisher):
    """Its connections to resolvers are counted."""

    traffic: Traffic

    async def call(self, address: Address, pushed: Callable[[list[Message]], None]) -> Caller:
        caller = await super().call(address, pushed)
        self.traffic.attach(caller)
        return caller


class SubscriberRole:
    """One subscriber, or many in one process."""

    def __init__(self) -> None:
        self._counted = 0
        self._times: list[int] = []
        self._handles: list[ValueSubscription] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, resolvers: list[str], way: Way, count: int, subscribers: int) -> None:
        paths = [path_of(number) for number in range(count)]
        for _ in range(subscribers):
            subscriber = Subscriber(resolvers, proof=way.proof, ca=way.ca)
            for found in await subscriber.subscribe_all(paths):
                if isinstance(found, Exception):
                    raise found
                self._handles.append(found)
            self._tasks.append(asyncio.create_task(self._read(subscriber)))
            # What comes before it reads is not counted.
            await when(lambda: bool(subscriber._batches), WAIT_S)  # noqa: B023, SLF001

    async def _read(self, subscriber: Subscriber) -> None:
        async for batch in subscriber.batches():
            self._counted += len(batch.values)
            if len(batch.values) == 1:
                self._times.append(now_ns() - batch.values[0])

    async def until(self, count: int) -> int:
        """When so many had come; counted anew from here on."""
        ended_ns = await when(lambda: self._counted >= count or self._has_ended(), WAIT_S)
        if self._counted != count or self._has_ended():
            raise RuntimeError(f"{self._counted} updates came of {count}")
        self._counted = 0
        return ended_ns

    def _has_ended(self) -> bool:
        return any(task.done() for task in self._tasks) or any(
            handle.is_over for handle in self._handles[:1]
        )

    async def last(self) -> list[bytes]:
        """The values that there are now, each once."""
        return list({handle.value for handle in self._handles})

    async def times(self) -> list[int]:
        times, self._times = self._times, []
        return times


class AskerRole:
    """Asks one resolver where paths are."""

    async def open(self, address: str) -> None:
        self._address = listen_address(address)
        self._resolver = Resolver([address])

    async def resolve(self, count: int) -> float:
        """By the library: seconds for all, in large batches. All are found."""
        took = 0.0
        for first in range(0, count, ASKED_AT_ONCE):
            paths = [path_of(number) for number in range(first, min(first + ASKED_AT_ONCE, count))]
            started = time.perf_counter()
            found = await self._resolver.resolve_all(paths)
            took += time.perf_counter() - started
            missing = [one for one in found if not isinstance(one, Resolution)]
            if missing:
                raise RuntimeError(f"{len(missing)} of {len(found)} not found: {missing[0]}")
        return took

    async def resolve_raw(self, count: int) -> float:
        """By a client that has its calls ready and counts the answers."""
        frames = [
            frame([ResolvePaths(first, [path_of(number) for number in range(first, stop)])])
            for first in range(0, count, PATHS_PER_CALL_MAX)
            if (stop := min(first + PATHS_PER_CALL_MAX, count))
        ]
        caller = await open_caller(self._address, _Asking, timeout_ms=HELLO_TIMEOUT_MS)
        assert isinstance(caller, _Asking)
        started = time.perf_counter()
        waiting: list[asyncio.Future[None]] = []
        for place, one in enumerate(frames):
            if place >= AT_ONCE:
                await waiting[place - AT_ONCE]
            waiting.append(caller.write(one))
        await asyncio.gather(*waiting[-AT_ONCE:])
        took = time.perf_counter() - started
        if caller.found != count:
            raise RuntimeError(f"{caller.found} of {count} paths were found")
        caller.close("DONE", "the benchmark is done")
        return took

    async def are_found(self, numbers: list[int]) -> bool:
        found = await self._resolver.resolve_all([path_of(number) for number in numbers])
        return all(isinstance(one, Resolution) for one in found)

    async def found_again(self, numbers: list[int]) -> int:
        """When all of these were found."""
        end = time.monotonic() + WAIT_S
        while not await self.are_found(numbers):
            if time.monotonic() > end:
                raise TimeoutError(f"{len(numbers)} paths are not found again")
            await asyncio.sleep(0.01)
        return now_ns()


class _Asking(Counting):
    """Counts what is found."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def received(self, messages: list[Any]) -> None:
        if {*map(type, messages)} != {PathsResolved}:
            self.refused(messages)
            return
        self.found += sum(not one.code for message in messages for one in message.found)
        self.tickets.pay(len(messages))

    def write(self, data: bytearray) -> "asyncio.Future[None]":
        assert self._transport is not None
        self._transport.write(data)
        return self.tickets.take(1)
