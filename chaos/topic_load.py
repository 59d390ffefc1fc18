"""Topics under load: publishers with and without numbers, members of groups, durable sessions, the audit."""

import asyncio
import itertools
import re
from collections.abc import Callable

import moorline
from chaos.history import Done, Got, History, LostRange, Outcome, Published, body_of, name_of
from chaos.load import Actor, Load, until
from chaos.world import Node
from moorline.client.moor import Moor
from moorline.client.topic import Subscription, TopicMessage
from moorline.errors import MoorlineError
from moorline.wire.topic import Published as Answer

TOPIC = "load"
FILTER = "load/#"
SHARED, QUEUED = f"$shared/team/{FILTER}", f"$queue/pool/{FILTER}"
SESSION = "log-keeper"
AUDIT = "audit"
KEYS = 5
PAUSE_S_MAX = 0.03
BATCH_CHANCE, BATCH = 0.15, 8
LEAVE_CHANCE, REJECT_CHANCE, DRAG_CHANCE = 0.003, 0.01, 0.01
DRAG_S_MAX = 0.3


class Publisher(Actor):
    """Publishes at one node. With numbers it tries again what was not answered, else it goes on."""

    def __init__(self, load: Load, name: str, node: Node, *, is_numbered: bool) -> None:
        super().__init__(load, name)
        self._node = node
        self._is_numbered = is_numbered
        self._numbers = itertools.count(1)
        self._open: list[int] = []
        """Numbers that have no answer yet; only with numbers."""

    def node(self) -> Node | None:
        return self._node if self._node.is_running else None

    async def work(self, moor: Moor) -> None:
        while True:
            async with self.load.making():
                if not self._open:
                    is_batch = self.random.random() < BATCH_CHANCE
                    self._open = [next(self._numbers) for _ in range(BATCH if is_batch else 1)]
                numbers = self._open
                if not self._is_numbered:
                    self._open = []
                await self._publish(moor, numbers)
            await asyncio.sleep(self.random.random() * PAUSE_S_MAX)

    async def _publish(self, moor: Moor, numbers: list[int]) -> None:
        # One key for a batch: the answer then says where the last of them is.
        key = f"{self.name}-{numbers[0] % KEYS}"
        topic = f"{TOPIC}/{numbers[0] % 3}"
        names = [f"{self.name}-{number:06}" for number in numbers]
        records = [moorline.record(topic, body_of(name), key=key) for name in names]
        producer = self.name if self._is_numbered else ""
        sequence = numbers[0] if self._is_numbered else 0
        outcome, answers = Outcome.UNKNOWN, None
        try:
            outcome, answers = await self.settled(
                lambda: moor.publish_all(records, producer=producer, sequence=sequence)
            )
        finally:
            self._note(key, names, outcome, answers)
        if outcome is Outcome.ANSWERED:
            self._open = []

    def _note(
        self, key: str, names: list[str], outcome: Outcome, answers: list[Answer] | None
    ) -> None:
        shard = offset = -1
        if answers and not answers[-1].duplicates:
            shard, offset = answers[-1].shard, answers[-1].offset
        for name in names:
            batch = len(names)
            self.note(Published(self._node.name, key, name, outcome, shard, offset, batch))


class Member(Actor):
    """A member of a group, or a durable session of its own; it reads at any node that runs."""

    def __init__(self, load: Load, name: str, reader: str, text: str, session: str = "") -> None:
        super().__init__(load, name)
        self._reader = reader
        self._filter = text
        self._session = session

    def node(self) -> Node | None:
        running = self.load.world.running()
        return self.random.choice(running) if running else None

    async def work(self, moor: Moor) -> None:
        subscription = await self._subscribe(moor)
        told = 0
        while True:
            await self.load.reading.wait()
            message = await subscription.get(1.0)
            told = note_lost(self.load.history, subscription, told)
            if message is None:
                continue
            self.note(got(self._reader, message))
            if self.random.random() < LEAVE_CHANCE:
                return
            if self.random.random() < DRAG_CHANCE:
                await asyncio.sleep(self.random.random() * DRAG_S_MAX)
            if "$queue" in self._filter and self.random.random() < REJECT_CHANCE:
                await message.reject()
            else:
                await message.ack()
                self._done(message)

    async def _subscribe(self, moor: Moor) -> Subscription:
        if self._session:
            for known in await self.call(lambda: moor.session(self._session)):
                if known.filter == self._filter:
                    return known
        window = self.random.choice((8, 64, 256))
        return await self.call(lambda: _subscribed(moor, self._filter, window))

    def _done(self, message: TopicMessage) -> None:
        stream = message.stream
        assert stream is not None
        self.note(Done(self._reader, stream.home, stream.shard_number, message.offset))


async def _subscribed(moor: Moor, text: str, window: int) -> Subscription:
    return await moor.subscribe(text, window=window, start="beginning")


def got(reader: str, message: TopicMessage) -> Got:
    stream = message.stream
    assert stream is not None
    key = (message.key or b"").decode()
    return Got(reader, stream.home, stream.shard_number, message.offset, key, name_of(message.body))


def note_lost(history: History, subscription: Subscription, told: int) -> int:
    """Notes what the node says to be gone, from the `told`th on."""
    for lost in subscription.lost[told:]:
        found = re.fullmatch(r"(.+)/(\d+)", lost.shard)
        assert found is not None, lost
        history.note(LostRange(found[1], int(found[2]), lost.first, lost.upto))
    return len(subscription.lost)


async def audit(load: Load, address: str, within_s: float) -> bool:
    """Reads all streams from the beginning; whether everything that is owed came."""
    history = load.history

    async def read() -> None:
        async with moorline.connect(address, reconnect=False) as moor:
            subscription = await moor.subscribe(FILTER, start="beginning")
            told = 0
            while True:
                message = await subscription.get(1.0)
                told = note_lost(history, subscription, told)
                if message is not None:
                    history.note(got(AUDIT, message))
                    await message.ack()

    reading = asyncio.create_task(read())
    try:
        return await until(_is_complete(history, AUDIT, reading), within_s)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _is_complete(
    history: History, reader: str, reading: "asyncio.Task[None]"
) -> Callable[[], bool]:
    def look() -> bool:
        if reading.done() and isinstance(reading.exception(), MoorlineError):
            return True
        return not history.missing(reader)

    return look
