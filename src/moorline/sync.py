"""Room: sync. The client for scripts and notebooks: the same calls, without `await`.

    import moorline.sync

    with moorline.sync.connect("tcp://127.0.0.1:7411") as moor:
        moor.publish("orders/eu", b"ahoy")
        for message in moor.subscribe("$shared/billing/orders/#"):
            print(message.body)
            message.ack()

It is the client of `moorline.connect`, on an event loop of its own in a thread of its own, so it works where
a loop runs already, as in a notebook. Several threads may share it. Ctrl-C ends the call that waits, and
gives it up at the node as a cancelled one.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, TypeVar

from moorline.client import topic
from moorline.client.access import Access
from moorline.client.connecting import connect as connect_async
from moorline.client.deadline import deadline, deadline_of
from moorline.client.events import ClientEvent
from moorline.client.feed import TopicMessage
from moorline.client.group import Group
from moorline.client.moor import Moor as AsyncMoor
from moorline.client.queue import Message as QueueMessage
from moorline.client.queue import Queue as AsyncQueue
from moorline.config.addresses import DEFAULT_ADDRESS
from moorline.errors import CallFailed, WrongLoop
from moorline.limits import GOODBYE_MS_MAX, TOPIC_WINDOW
from moorline.wire.node import Described
from moorline.wire.queue import QueueDescribed
from moorline.wire.topic import Published, Record

T = TypeVar("T")
OneMessage = TypeVar("OneMessage", bound=TopicMessage | QueueMessage)


class Loop:
    """An event loop in a thread, and what is done there for others."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="moorline", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        with contextlib.suppress(RuntimeError):
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for it; whoever is interrupted meanwhile has given it up."""
        if self.is_stopped or threading.current_thread() is self._thread:
            work.close()
            where = "its own thread waits for nobody" if not self.is_stopped else "it is closed"
            raise WrongLoop(f"this client cannot do that now: {where}")
        future: Future[T] = asyncio.run_coroutine_threadsafe(
            _within(work, deadline_of(_UNSET)), self._loop
        )
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.is_stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GOODBYE_MS_MAX / 1_000)


_UNSET = -1.0
"""No deadline of the thread's own: that of the client counts."""


async def _within(work: Coroutine[Any, Any, T], seconds: float | None) -> T:
    # What a thread sets is not seen by the loop's: it is carried over.
    if seconds == _UNSET:
        return await work
    with deadline(seconds):
        return await work


class Message(Generic[OneMessage]):
    """A message of a topic or a queue, with an `ack` that returns when it is said."""

    def __init__(self, loop: Loop, message: OneMessage) -> None:
        self._loop = loop
        self.message = message
        """As the asynchronous client has it."""

    @property
    def body(self) -> bytes:
        return self.message.body

    def ack(self) -> None:
        self._loop.do(_nothing_of(self.message.ack()))

    def __getattr__(self, name: str) -> Any:
        """Topic, key, headers, offset, time and the others of the message."""
        return getattr(self.message, name)

    def __repr__(self) -> str:
        return repr(self.message)


async def _nothing_of(work: Coroutine[Any, Any, object]) -> None:
    await work


class Subscription:
    """Messages as they come: iterate over it, in as many threads as like to."""

    def __init__(self, loop: Loop, subscription: topic.Subscription) -> None:
        self._loop = loop
        self._subscription = subscription

    @property
    def filter(self) -> str:
        return self._subscription.filter

    def get(self, timeout_s: float) -> Message[TopicMessage] | None:
        """The next message, or None if none came in time or the subscription is closed."""
        found = self._loop.do(self._subscription.get(timeout_s))
        return None if found is None else Message(self._loop, found)

    def reject(self, message: Message[TopicMessage]) -> None:
        self._loop.do(message.message.reject())

    def __iter__(self) -> Iterator[Message[TopicMessage]]:
        return _each(self._loop, self._subscription)

    def acking(self) -> Iterator[Message[TopicMessage]]:
        """Each message, acknowledged when the next one is asked for."""
        return _each(self._loop, self._subscription.acking())

    def close(self) -> None:
        self._loop.do(self._subscription.close())


class Queue:
    """A queue of the node: iterate over it to read it."""

    def __init__(self, loop: Loop, queue: AsyncQueue) -> None:
        self._loop = loop
        self._queue = queue

    @property
    def id(self) -> bytes:
        return self._queue.id

    def __str__(self) -> str:
        return str(self._queue)

    def __iter__(self) -> Iterator[Message[QueueMessage]]:
        return _each(self._loop, self._queue.read())

    def acking(self) -> Iterator[Message[QueueMessage]]:
        """Each message, acknowledged when the next one is asked for."""
        return _each(self._loop, self._queue.acking())

    def get(self) -> Message[QueueMessage] | None:
        """The head of the queue, without subscribing; None if it is empty."""
        found = self._loop.do(self._queue.get())
        return None if found is None else Message(self._loop, found)

    def info(self) -> QueueDescribed:
        return self._loop.do(self._queue.info())

    def delete(self) -> None:
        self._loop.do(self._queue.delete())


class Moor:
    """A client of a cluster. Made by `connect`; closed by `close` or the end of `with`."""

    def __init__(self, loop: Loop, moor: AsyncMoor) -> None:
        self._loop = loop
        self._is_closed = False
        self.moor = moor
        """The asynchronous client: for calls that have no name here, by `run`."""

    def run(self, call: Callable[[AsyncMoor], Coroutine[Any, Any, T]]) -> T:
        """Any other call: `moor.run(lambda m: m.topics())`."""
        return self._loop.do(call(self.moor))

    def describe(self) -> Described:
        """What the node says of itself."""
        return self._loop.do(self.moor.describe())

    def create_queue(self) -> Queue:
        return Queue(self._loop, self._loop.do(self.moor.create_queue()))

    def queue(self, queue_id: bytes | str) -> Queue:
        return Queue(self._loop, self.moor.queue(queue_id))

    def send(self, queue_id: bytes, body: bytes) -> int:
        """Stores a message in a queue; its id."""
        return self._loop.do(self.moor.send(queue_id, body))

    def send_all(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | CallFailed]:
        return self._loop.do(self.moor.send_all(messages))

    def publish(
        self,
        topic_name: str,
        body: bytes | None,
        *,
        key: bytes | str | None = None,
        headers: topic.Headers | None = None,
        ttl_s: int = 0,
        retain: bool = False,
        producer: str = "",
        sequence: int = 0,
    ) -> Published:
        """Stores a message, or with None a tombstone; its place."""
        return self._loop.do(
            self.moor.publish(
                topic_name,
                body,
                key=key,
                headers=headers,
                ttl_s=ttl_s,
                retain=retain,
                producer=producer,
                sequence=sequence,
            )
        )

    def publish_all(
        self, records: Iterable[Record], *, producer: str = "", sequence: int = 0
    ) -> list[Published]:
        """Many messages, from any iterable; it is read in the client's own thread."""
        return self._loop.do(self.moor.publish_all(records, producer=producer, sequence=sequence))

    def subscribe(
        self,
        filter_text: str,
        *,
        window: int = TOPIC_WINDOW,
        start: Any = "now",
        qos: int = 1,
    ) -> Subscription:
        """Messages of a filter, or a part of a group's, as `moorline.Moor.subscribe`."""
        asked = self.moor.subscribe(filter_text, window=window, start=start, qos=qos)
        return Subscription(self._loop, self._loop.do(_awaited(asked)))

    def session(self, name: str, *, expiry_s: int = 86_400) -> list[Subscription]:
        """Makes this client the durable session of that name; the subscriptions that it has."""
        opened = self._loop.do(self.moor.session(name, expiry_s=expiry_s))
        return [Subscription(self._loop, one) for one in opened]

    def group(self, name: str) -> Group:
        """For `run`: `moor.run(lambda m: m.group(name).info())`."""
        return self.moor.group(name)

    @property
    def access(self) -> Access:
        return self.moor.access

    def events(self) -> Iterator[ClientEvent]:
        """What happens to the connection and to what is subscribed, from now on."""
        return _plain(self._loop, self._loop.do(_called(self.moor.events)))

    def close(self) -> None:
        """Says goodbye, and ends its thread."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._loop.do(self.moor.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> "Moor":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(addresses: str | Sequence[str] = DEFAULT_ADDRESS, **options: Any) -> Moor:
    """As `moorline.connect`, with the same options; returns when it is connected."""
    loop = Loop()
    try:
        return Moor(loop, loop.do(_awaited(connect_async(addresses, **options))))
    except BaseException:
        loop.stop()
        raise


async def _awaited(work: Any) -> Any:
    return await work


async def _called(make: Callable[[], T]) -> T:
    """On the loop: what it makes may belong to that."""
    return make()


def _each(loop: Loop, messages: AsyncIterator[OneMessage]) -> Iterator[Message[OneMessage]]:
    for message in _plain(loop, messages):
        yield Message(loop, message)


def _plain(loop: Loop, items: AsyncIterator[T]) -> Iterator[T]:
    """One after the other; whoever stops in between has the reader closed, if it is one that can be."""
    try:
        while True:
            try:
                item = loop.do(_next_of(items))
            except _Ended:
                return
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None and not loop.is_stopped:
            loop.do(close())


class _Ended(Exception):
    """An iterator has no more. (No coroutine may raise StopIteration.)"""


async def _next_of(items: AsyncIterator[T]) -> T:
    try:
        return await anext(items)
    except StopAsyncIteration:
        raise _Ended from None
