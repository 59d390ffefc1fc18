"""Queues under load: senders that do not wait for each other, readers that acknowledge, and go away."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

from chaos.history import Acked, Delivered, Outcome, Sent, body_of, name_of
from chaos.load import Actor, Load
from chaos.world import Node
from moorline.client.moor import Moor
from moorline.client.queue import Message
from moorline.errors import CallFailed, ConnectionLost
from moorline.ids import text_of

SESSIONS = itertools.count(1)
PAUSE_S_MAX = 0.03
BATCH_CHANCE, BATCH = 0.2, 6
LEAVE_CHANCE = 0.01


class Sender(Actor):
    """Sends to some queues of one node; every try has a name of its own."""

    def __init__(self, load: Load, name: str, node: Node, queues: Sequence[bytes]) -> None:
        super().__init__(load, name)
        self._node = node
        self._queues = list(queues)
        self._numbers = itertools.count(1)

    def node(self) -> Node | None:
        return self._node if self._node.is_running else None

    async def work(self, moor: Moor) -> None:
        while True:
            async with self.load.making():
                queue = self.random.choice(self._queues)
                if self.random.random() < BATCH_CHANCE:
                    await self._send_batch(moor, queue)
                else:
                    await self._send(moor, queue)
            await asyncio.sleep(self.random.random() * PAUSE_S_MAX)

    def _draw(self) -> str:
        return f"{self.name}-{next(self._numbers):06}"

    def _sent(self, queue: bytes, name: str, outcome: Outcome, message: int = 0) -> None:
        self.note(Sent(self._node.name, text_of(queue), name, outcome, message))

    async def _send(self, moor: Moor, queue: bytes) -> None:
        name, outcome, message = self._draw(), Outcome.UNKNOWN, None
        try:
            outcome, message = await self.settled(lambda: moor.send(queue, body_of(name)))
        finally:
            self._sent(queue, name, outcome, message or 0)

    async def _send_batch(self, moor: Moor, queue: bytes) -> None:
        names = [self._draw() for _ in range(BATCH)]
        answers: list[int | CallFailed] | None = None
        try:
            _, answers = await self.settled(
                lambda: moor.send_all([(queue, body_of(name)) for name in names])
            )
        finally:
            for place, name in enumerate(names):
                answer = answers[place] if answers is not None else None
                if isinstance(answer, int):
                    self._sent(queue, name, Outcome.ANSWERED, answer)
                else:
                    refused = isinstance(answer, CallFailed)
                    self._sent(queue, name, Outcome.REFUSED if refused else Outcome.UNKNOWN)


class QueueReader(Actor):
    """The recipient of one queue. Now and then it leaves in the middle, or gives an ack up."""

    def __init__(self, load: Load, name: str, node: Node, queue: bytes) -> None:
        super().__init__(load, name)
        self._node = node
        self._queue = queue

    def node(self) -> Node | None:
        return self._node if self._node.is_running else None

    async def work(self, moor: Moor) -> None:
        reading = moor.queue(self._queue).read(window=self.random.choice((1, 4, 16)))
        session = next(SESSIONS)
        async with aclosing(cast("AsyncGenerator[Message]", reading)) as messages:
            async for message in messages:
                if not await take(self, session, message):
                    return


async def take(actor: Actor, session: int, message: Message) -> bool:
    """Notes a message and acknowledges it; False if the reader begins anew behind it."""
    await actor.load.reading.wait()
    if message.is_quota_marker:
        await message.ack()
        return True
    queue = text_of(message.queue)
    actor.note(Delivered(queue, session, message.id, name_of(message.body)))
    if actor.random.random() < LEAVE_CHANCE:
        return False
    outcome = Outcome.UNKNOWN
    try:
        outcome, _ = await actor.settled(message.ack)
    except ConnectionLost:
        return False
    finally:
        actor.note(Acked(queue, message.id, outcome))
    # Whether it was taken is not known, or it is not the head: the next reading tells.
    return outcome is Outcome.ANSWERED
