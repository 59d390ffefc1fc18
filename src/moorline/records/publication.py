"""Room: records. One table that feeds a topic: what changes is stored, then published, then marked as done.

    step of the capture ─► batch in the catalog ─► streams ─► batch away
                           │                       numbered: a shard passes over what it has
                           with the snapshot that it leads to, in one statement, under the node's identity

The order in which rows come cannot be had again, so a batch is stored before its first message is published;
whoever finds it behind a crash publishes the same messages under the same numbers. A step that is larger than
a batch leads nowhere until its last batch: if it is cut short, the state begins anew, with a marker and all
rows.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

import msgspec

from moorline.catalog.publications import Publication, Publications, PublicationState, StoredBatch
from moorline.core.records.snapshot import Snapshot
from moorline.errors import CatalogUnreachable, Denied, MoorlineError, RightsUnknown
from moorline.limits import (
    RECORDS_AWAY_MS_MAX,
    RECORDS_PUBLISH_AGAIN_MS_MAX,
    RECORDS_PUBLISH_KEEP_MS,
    RECORDS_PUBLISH_LOOK_MS,
)
from moorline.net.clock import monotonic_ms
from moorline.records.capture import Capture, ScannedRow, Step
from moorline.records.publication_message import (
    Batch,
    PublishedMessage,
    marker,
    of_change,
    packed,
    record,
    unpacked,
)

log = logging.getLogger("moorline.records")

AGAIN_MS = 100
OpenCapture = Callable[[str], AbstractAsyncContextManager[Capture]]


class Sink(Protocol):
    """The streams of this node."""

    @property
    def home(self) -> str: ...
    @property
    def shards(self) -> int: ...
    @property
    def message_bytes_max(self) -> int: ...

    def last(self, producer: str) -> int:
        """The highest number that the streams remember of a producer; -1 if they do not know it."""

    def check(self, topic: str) -> None:
        """BadTopic, or Denied for one that only nodes publish to."""

    async def publish(
        self, topic: str, producer: str, first: int, messages: Sequence[PublishedMessage]
    ) -> None:
        """Numbered from `first` on. When it returns they are as durable as the streams are, each once."""


class NotOurs(Exception):
    """Another process, or nobody, publishes it now."""


class TablePublisher:
    """Runs until its publication is stopped, or another process has our identity."""

    def __init__(
        self,
        publication: Publication,
        publications: Publications,
        open_capture: OpenCapture,
        sink: Sink,
        check: Callable[[], None],
        refused: Callable[[Denied | RightsUnknown], None],
        *,
        poll_ms: int,
        poll_ms_max: int,
    ) -> None:
        """`check` raises what whoever made it is told where its rights are not granted any more; `refused`
        hears of that once, until it goes on."""
        self.number = publication.number
        self.name = publication.name
        self.problem = ""
        self._topic = publication.topic
        self._producer = f"$records/{publication.name}/{publication.number}"
        self._publications = publications
        self._open_capture = open_capture
        self._sink = sink
        self._check, self._refused = check, refused
        self._poll_ms, self._poll_ms_max = poll_ms, poll_ms_max
        self._state = PublicationState(0, 0, None, "")
        self._looked_ms = self._kept_ms = 0

    async def run(self) -> None:
        pause_ms = AGAIN_MS
        while True:
            begun_ms = monotonic_ms()
            try:
                found = await self._publications.load(self.number)
                if found is None:
                    return
                await self._take_up(found)
                async with self._open_capture(self.name) as capture:
                    await self._follow(capture)
            except NotOurs:
                # Stopped, which the next look tells; or the node ends, for another has its identity.
                self.problem = "another process publishes it"
            except MoorlineError as error:
                if str(error) != self.problem:
                    log.warning(
                        "a table is not published", extra={"table": self.name, "why": str(error)}
                    )
                    self.problem = str(error)
                    if isinstance(error, (Denied, RightsUnknown)):
                        self._refused(error)
                    with suppress(CatalogUnreachable):
                        await self._publications.tell(self.number, self.problem[:500])
            except Exception:
                # Without this task the topic would stand still until the next start, and nobody would know.
                log.exception("a publication failed", extra={"table": self.name})
                self.problem = "the node made a mistake: its log has it"
                with suppress(CatalogUnreachable):
                    await self._publications.tell(self.number, self.problem)
            has_gone_on = monotonic_ms() - begun_ms > RECORDS_PUBLISH_AGAIN_MS_MAX
            pause_ms = AGAIN_MS if has_gone_on else min(2 * pause_ms, RECORDS_PUBLISH_AGAIN_MS_MAX)
            await asyncio.sleep(pause_ms / 1_000)

    # --- where it stands --------------------------------------------------------------------------

    async def _take_up(self, found: Publication) -> None:
        """What a process before this one had stored is published to its end."""
        self._state = PublicationState(found.sequence, found.round, found.snapshot, found.described)
        self._looked_ms = self._kept_ms = monotonic_ms()
        self.problem = found.problem
        batch = found.batch
        published = found.sequence if batch is None else batch.sequence
        # Streams that were lost, or put back as they were before, lack what was published; and of a batch
        # they may have forgotten what they have. With another number of shards, messages would go to shards
        # that do not know it.
        is_lost = published > 0 and self._sink.last(self._producer) < published
        if is_lost or (batch is not None and batch.shards != self._sink.shards):
            # Nothing more of the batch is published, and what follows does not build on it.
            self._state = msgspec.structs.replace(self._state, snapshot=None)
            if not await self._publications.keep(self.number, self._state, drops_batch=True):
                raise NotOurs
        elif batch is not None:
            await self._publish(batch)

    async def _publish(self, batch: StoredBatch) -> None:
        # At each batch, also of one that was stored before: rows are as they are now, and not as they were
        # when somebody asked for it.
        self._check()
        messages = unpacked(batch.body)
        await self._sink.publish(self._topic, self._producer, batch.sequence + 1, messages)
        if not await self._publications.done(self.number, batch.sequence):
            raise NotOurs

    async def _store(
        self, messages: list[PublishedMessage], number: int, snapshot: str | None, described: str
    ) -> None:
        self._check()
        since = self._state.sequence
        state = PublicationState(since + len(messages), number, snapshot, described)
        batch = StoredBatch(since, self._sink.shards, packed(messages))
        stored = await self._publications.store(self.number, since, state, batch.shards, batch.body)
        if not stored:
            raise NotOurs
        self._state = state
        self._kept_ms = monotonic_ms()
        await self._publish(batch)

    # --- following --------------------------------------------------------------------------------

    async def _follow(self, capture: Capture) -> None:
        pause_ms = self._poll_ms
        state = self._state
        if state.snapshot is not None and state.described != _described(capture):
            # Columns that came or went change rows without a number.
            self._state = msgspec.structs.replace(state, snapshot=None)
        while True:
            # Before the table is read, and so also while nothing changes.
            self._check()
            if self._state.snapshot is None:
                await self._begin_anew(capture)
            has_changed = self._state.snapshot is not None and await self._step(capture)
            if self._state.snapshot is not None and self.problem:
                self.problem = ""
                await self._publications.tell(self.number, "")
            await self._look()
            pause_ms = self._poll_ms if has_changed else min(2 * pause_ms, self._poll_ms_max)
            await asyncio.sleep(pause_ms / 1_000)

    async def _begin_anew(self, capture: Capture) -> None:
        """A marker, and all rows at one snapshot, from which steps go on."""
        async with capture.step(await capture.position(), is_exported=True) as step:
            # Steps could not go on from here, and the next snapshot would be published at once.
            waits_for = step.resync if step.resync and step.resync.why == "log" else None
            if waits_for is None:
                await self._publish_rows(capture, step)
        if waits_for is not None:
            await self._wait(waits_for.text)

    async def _publish_rows(self, capture: Capture, step: Step) -> None:
        described = _described(capture)
        number = await self._publications.draw_round()
        rows = capture.scan_rows((), await step.export())
        await self._publish_all(self._snapshot(rows, number), number, str(step.until), described)

    async def _snapshot(
        self, rows: AsyncIterator[list[ScannedRow]], number: int
    ) -> AsyncIterator[PublishedMessage]:
        bytes_max = self._sink.message_bytes_max
        yield marker(self.name, number)
        async for part in rows:
            for row in part:
                yield record(row.key, row, number, bytes_max)

    async def _step(self, capture: Capture) -> bool:
        """Whether something was published."""
        assert self._state.snapshot is not None
        since, number = Snapshot.parse(self._state.snapshot), self._state.round
        bytes_max, before = self._sink.message_bytes_max, self._state.sequence
        async with capture.step(since) as step:
            if step.resync is not None:
                log.info(
                    "a published table begins anew",
                    extra={"table": self.name, "why": step.resync.text},
                )
                self._state = msgspec.structs.replace(self._state, snapshot=None)
                return False
            if not step.is_unchanged:
                messages = (
                    of_change(change, number, bytes_max)
                    async for part in step.changes()
                    for change in part
                )
                await self._publish_all(messages, number, str(step.until), _described(capture))
            if self._state.sequence == before:
                self._state = msgspec.structs.replace(self._state, snapshot=str(step.until))
        return self._state.sequence != before

    async def _publish_all(
        self,
        messages: AsyncIterator[PublishedMessage],
        number: int,
        until: str,
        described: str,
    ) -> None:
        """Only the last batch leads to `until`: a process that ends before it begins anew."""
        batch = Batch()
        async for message in messages:
            if batch.is_full:
                await self._store(batch.messages, number, None, described)
                batch = Batch()
            batch.add(message)
        if batch.messages:
            await self._store(batch.messages, number, until, described)

    async def _look(self) -> None:
        """Nothing changes for long: it may be stopped, and the log goes on without its place."""
        now_ms, state = monotonic_ms(), self._state
        if state.snapshot is not None and now_ms - self._kept_ms >= RECORDS_PUBLISH_KEEP_MS:
            self._kept_ms = self._looked_ms = now_ms
            if not await self._publications.keep(self.number, state):
                raise NotOurs
        elif now_ms - self._looked_ms >= RECORDS_PUBLISH_LOOK_MS:
            self._looked_ms = now_ms
            found = await self._publications.load(self.number)
            if found is None or found.sequence != state.sequence:
                raise NotOurs

    async def _wait(self, why: str) -> None:
        if self.problem != why:
            self.problem = why
            await self._publications.tell(self.number, why)
        await asyncio.sleep(RECORDS_AWAY_MS_MAX / 1_000)


def _described(capture: Capture) -> str:
    """What a snapshot depends on: of another one, it says nothing."""
    text = f"{capture.table.epoch}\0{capture.shape}".encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
