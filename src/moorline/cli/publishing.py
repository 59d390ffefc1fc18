"""Room: cli. How `moor topic publish` sends what it has read: one message, or lines in batches."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import msgspec
import typer

from moorline.cli import output
from moorline.cli.progress import progress
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.errors import CallFailed
from moorline.limits import PUBLISH_BATCH_MAX, PUBLISH_BATCHES_IN_FLIGHT
from moorline.wire.topic import Published, Record


class Template(msgspec.Struct, frozen=True):
    """What all messages of one command have in common."""

    topic: str
    key: bytes | None
    headers: list[tuple[str, bytes]]
    ttl_s: int
    retain: bool

    def record(self, body: bytes | None) -> Record:
        return record(
            self.topic,
            body,
            key=self.key,
            headers=self.headers,
            ttl_s=self.ttl_s,
            retain=self.retain,
        )


def headers_of(texts: list[str]) -> list[tuple[str, bytes]]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not name.isprintable():
            raise typer.BadParameter(f"--header {text!r}: write NAME=VALUE")
        pairs.append((name, bytes_of(value)))
    return pairs


def bytes_of(argument: str) -> bytes:
    """As the shell gave it, text or not."""
    return argument.encode("utf-8", "surrogateescape")


def show_stored(stored: Published, *, as_json: bool) -> None:
    facts: dict[str, object] = {"shard": stored.shard, "offset": stored.offset}
    if stored.duplicates:
        facts = {"shard": None, "offset": None}  # the node does not say where the first one is
    words = "stored before: nothing to do"
    if not stored.duplicates:
        words = f"shard {stored.shard}, offset {stored.offset}"
    facts["is_duplicate"] = bool(stored.duplicates)
    output.emit(as_json, facts, lambda: output.line(words))


async def publish_lines(
    moor: Moor,
    source: AsyncIterator[list[bytes]],
    template: Template,
    producer: str,
    sequence: int,
    *,
    as_json: bool,
) -> None:
    """Several batches are on their way at once; the first refusal is the error, when all are answered."""
    sender = _Lines(moor, producer, sequence)
    try:
        with progress("publishing") as seen:
            async for some in source:
                for start in range(0, len(some), PUBLISH_BATCH_MAX):
                    batch = some[start : start + PUBLISH_BATCH_MAX]
                    await sender.send([template.record(body) for body in batch])
                    seen(sender.stored, 0)
                if sender.refusal is not None:
                    break
            await sender.finish()
    finally:
        await sender.leave()
        facts = {"stored": sender.stored, "duplicates": sender.duplicates}
        twice = f", {sender.duplicates:,} were there already" if sender.duplicates else ""
        words = f"{sender.stored:,} messages stored{twice}"
        output.emit(as_json, facts, lambda: output.line(words))
    if sender.refusal is not None:
        raise sender.refusal


class _Lines:
    """Batches on their way, and what has become of those before."""

    def __init__(self, moor: Moor, producer: str, sequence: int) -> None:
        self.stored = 0
        self.duplicates = 0
        self.refusal: CallFailed | None = None
        self._moor = moor
        self._producer = producer
        self._sequence = sequence
        self._made = 0
        self._waiting: deque[tuple[int, int, asyncio.Task[list[Published]]]] = deque()

    async def send(self, records: list[Record]) -> None:
        publishing = self._moor.publish_all(
            records,
            producer=self._producer,
            sequence=self._sequence + self._made if self._producer else 0,
        )
        first, self._made = self._made + 1, self._made + len(records)
        self._waiting.append((first, self._made, asyncio.ensure_future(publishing)))
        # What is answered is counted at once; the oldest is waited for where too many are out.
        while self._waiting and self._waiting[0][2].done():
            await self._count()
        while len(self._waiting) >= PUBLISH_BATCHES_IN_FLIGHT:
            await self._count()

    async def finish(self) -> None:
        while self._waiting:
            await self._count()

    async def leave(self) -> None:
        """Nobody waits for the rest: the connection is gone, or the command was stopped."""
        rest = [publishing for _, _, publishing in self._waiting]
        for publishing in rest:
            publishing.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _count(self) -> None:
        first, last, publishing = self._waiting.popleft()
        try:
            answers = await publishing
        except CallFailed as error:
            if self.refusal is None:
                # A call is stored whole or not at all.
                self.refusal = type(error)(f"lines {first} to {last}: {error}")
            return
        self.stored += sum(answer.stored for answer in answers)
        self.duplicates += sum(answer.duplicates for answer in answers)
