"""Room: client. `Moor`: a connection to a node, as a user of the library sees it.

async with moorline.connect("tcp://127.0.0.1:7411") as moor:
    print(await moor.describe())
"""

import asyncio
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from moorline.client.queue import Inboxes, Message, Queue
from moorline.config.addresses import Address, listen_address
from moorline.errors import CallFailed, ConfigError, Malformed
from moorline.ids import id_of
from moorline.limits import GOODBYE_MS_MAX, HELLO_TIMEOUT_MS, KEEPALIVE_MS
from moorline.net.caller import Caller, open_caller
from moorline.version import SOFTWARE
from moorline.wire.message import Answer, Failed
from moorline.wire.message import Message as Pushed
from moorline.wire.node import Describe, Described, Echo, Echoed
from moorline.wire.queue import (
    Acknowledge,
    Get,
    Got,
    ListQueues,
    NewQueue,
    QueueMade,
    QueuesListed,
    Send,
    Sent,
)

if TYPE_CHECKING:
    from moorline.client.service import Service

Reply = TypeVar("Reply", bound=Answer)

DEFAULT_ADDRESS = "tcp://127.0.0.1:7411"


class Moor:
    """A connection to one node. Made by `connect`; closed by `close` or the end of `async with`."""

    def __init__(self, caller: Caller, address: Address) -> None:
        self.address = address
        self._caller = caller
        self._inboxes = Inboxes()
        self._service: Service | None = None
        caller.pushed = self._pushed
        caller.lost.add_done_callback(lambda _: self._lost())

    async def describe(self) -> Described:
        """What the node says of itself."""
        return await self._caller.call(Describe, Described)

    async def echo(self, body: bytes) -> bytes:
        """The same bytes, back from the node."""
        answer = await self._caller.call(lambda call: Echo(call, body), Echoed)
        return answer.body

    async def echo_all(self, bodies: Sequence[bytes]) -> list[Answer]:
        """Many at once, in as few frames as they need."""
        return await self._caller.call_all(
            [lambda call, body=body: Echo(call, body) for body in bodies]  # type: ignore[misc]
        )

    # --- queues -----------------------------------------------------------------------------------

    async def create_queue(self) -> Queue:
        """A new queue; the node draws its id, and we own it."""
        made = await self._caller.call(NewQueue, QueueMade)
        return self.queue(made.queue)

    async def create_queues(self, count: int) -> list[Queue]:
        answers = await self._caller.call_all([NewQueue] * count)
        return [self.queue(_expected(answer, QueueMade).queue) for answer in answers]

    def queue(self, queue_id: bytes | str) -> Queue:
        """A queue by its id; the node is not asked whether it is there."""
        known = id_of(queue_id) if isinstance(queue_id, str) else queue_id
        return Queue(self._caller, self._inboxes, known)

    async def send(self, queue_id: bytes, body: bytes) -> int:
        """Stores a message in a queue; returns its id when it is as durable as the node promises."""
        sent = await self._caller.call(lambda call: Send(call, queue_id, body), Sent)
        return sent.message

    async def send_all(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | CallFailed]:
        """Many (queue id, body) at once; for each its id, or why it was refused."""
        makes = [partial(_send, queue, body) for queue, body in messages]
        answers = await self._caller.call_all(makes)
        return [
            CallFailed.of(answer.code, answer.text)
            if isinstance(answer, Failed)
            else _expected(answer, Sent).message
            for answer in answers
        ]

    async def get_all(self, queues: Sequence[Queue]) -> list[Message | None]:
        """The head of each queue, None where it is empty; without subscribing."""
        answers = await self._caller.call_all([partial(_get, queue.id) for queue in queues])
        return [
            queue.message(_expected(answer, Got))
            for queue, answer in zip(queues, answers, strict=True)
        ]

    async def ack_all(self, messages: Sequence[Message]) -> list[CallFailed | None]:
        """Many acknowledgements at once, in this order; for each None, or why it was refused."""
        makes = [partial(_acknowledge, message.queue, message.id) for message in messages]
        answers = await self._caller.call_all(makes)
        return [
            CallFailed.of(answer.code, answer.text) if isinstance(answer, Failed) else None
            for answer in answers
        ]

    async def list_queues(self, after: bytes = b"", count: int = 1_000) -> QueuesListed:
        """A page of all queues on the node, for its operator."""
        return await self._caller.call(lambda call: ListQueues(call, after, count), QueuesListed)

    # --- services ---------------------------------------------------------------------------------

    def service(self, associations: Path | str, *, window: int = 1) -> "Service":
        """The service of our certificate; `associations` is the file of its list on this side."""
        if self._service is not None and not self._service.is_closed:
            raise ConfigError("this connection already acts for a service: open another one")
        # Not at the top: it brings numpy, and most programs and commands need none of it.
        from moorline.client.associations import Associations
        from moorline.client.service import Service

        self._service = Service(self._caller, Associations(associations), window=window)
        return self._service

    def _pushed(self, messages: list[Pushed]) -> None:
        for message in messages:
            if not self._inboxes.sort(message) and self._service is not None:
                self._service.hear(message)

    def _lost(self) -> None:
        self._inboxes.lost()
        if self._service is not None:
            self._service.connection_lost()

    async def close(self) -> None:
        """Says goodbye, and waits a moment for it to be out."""
        self._caller.close("DONE", "the client is done")
        await asyncio.wait([self._caller.gone], timeout=GOODBYE_MS_MAX / 1_000)


def _send(queue: bytes, body: bytes, call: int) -> Send:
    return Send(call, queue, body)


def _get(queue: bytes, call: int) -> Get:
    return Get(call, queue)


def _acknowledge(queue: bytes, message: int, call: int) -> Acknowledge:
    return Acknowledge(call, queue, message)


def _expected(answer: Answer, kind: type[Reply]) -> Reply:
    if isinstance(answer, Failed):
        raise CallFailed.of(answer.code, answer.text)
    if not isinstance(answer, kind):
        raise Malformed(f"{type(answer).__name__} is no {kind.__name__}")
    return answer


class Connecting:
    """What `connect` returns: `await` it for a `Moor`, or use it in `async with`."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_ms: int,
        ca: Path | None,
        certificate: Path | None,
        key: Path | None,
    ) -> None:
        self._address = address
        self._timeout_ms = timeout_ms
        self._ca, self._certificate, self._key = ca, certificate, key
        self._moor: Moor | None = None

    async def _connect(self) -> Moor:
        caller = await open_caller(
            self._address,
            lambda: Caller(
                f"{SOFTWARE} python",
                hello_timeout_ms=self._timeout_ms,
                keepalive_ms=KEEPALIVE_MS,
            ),
            timeout_ms=self._timeout_ms,
            ca=self._ca,
            certificate=self._certificate,
            key=self._key,
        )
        return Moor(caller, self._address)

    def __await__(self) -> Generator[object, None, Moor]:
        return self._connect().__await__()

    async def __aenter__(self) -> Moor:
        self._moor = await self._connect()
        return self._moor

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._moor is not None
        await self._moor.close()


def connect(
    address: str = DEFAULT_ADDRESS,
    *,
    timeout_ms: int = HELLO_TIMEOUT_MS,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Connecting:
    """Connects to a node: `tcp://HOST:PORT`, or `tls://HOST:PORT` with a CA and a certificate."""
    try:
        parsed = listen_address(address)
    except ValueError as error:
        raise ConfigError(f"{address!r} is not the address of a node: {error}") from error
    return Connecting(parsed, timeout_ms=timeout_ms, ca=ca, certificate=certificate, key=key)
