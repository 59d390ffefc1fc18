"""Room: staging. Commits of staged writes: a batch of a query is published exactly once.

A commit of a batch, in turn with others of its query:

    at or below the last one decided   `already`; what is left of that one is published first
    every stage read, queues looked at  a refusal here leaves nothing behind
    the decision, durable               from here on the batch will be published, by this start or the next
    published                           stage after stage, in the order of the partitions
    completed, durable                  the stages are removed, and the caller is answered

A crash leaves a decision without its end, and the next start goes on from the last note of how far it
came. Topics: what was published behind that note is passed over by the deduplication of the shards. The
producer is (query, partition) and the sequence is the batch and the row, so that a query has as many
producers as partitions, and not one for every batch. Queues have no deduplication: there the note is a
message in a queue of the node's own, and is sent in the same turn as the rows it speaks of. Both are in one
batch of the write-ahead log, which is whole or not there. (A note that waits longer than `queues.ttl_s` is
gone: a node that was down for so long in the middle of a commit sends its rows to queues again.)

Deduplication holds in a shard. So a node that is started with another number of shards while a commit to
topics is decided and not completed keeps the number that it had, for that run (`node.topics`).
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from moorline.access.guard import demand
from moorline.core.access.right import WRITE
from moorline.core.frames.byte_columns import prepare
from moorline.core.queue.queue import NODES_OWN, RECORD_HEAD_BYTES, Queue
from moorline.core.topic import check_topic
from moorline.errors import (
    JournalDamaged,
    Malformed,
    MoorlineError,
    NodeDiskFull,
    NotFound,
    OutcomeUnknown,
    StartError,
    Unsupported,
)
from moorline.ids import id_of, text_of
from moorline.journal.disk import Disk, read_all
from moorline.journal.staging.commit_log import Decided
from moorline.journal.staging.stage_file import Chunk
from moorline.journal.staging.store import StagePosition, StagingStore
from moorline.limits import (
    COMMIT_BYTES_MAX,
    STAGED_NOTE_BYTES,
    STAGED_NOTE_STAGES_MAX,
    STAGED_QUEUE_ROWS_PER_TURN,
    STAGED_ROOM_MS_MAX,
)
from moorline.net.session_rights import SessionRights
from moorline.staging.aside import (
    AsideRow,
    Refused,
    aside_of,
    check_bodies,
    named,
    publish_aside,
    publish_leftovers,
    put_aside,
)
from moorline.staging.queue_commits import (
    NodeQueues,
    check_queues,
    check_stored,
    durable,
    leave_note,
    no_room,
    noted,
    undisturbed,
)
from moorline.staging.read_ahead import ChunksAhead, chunks_ahead
from moorline.staging.rows import TopicsSeen
from moorline.topics.commands import TopicBroker
from moorline.topics.paths import TOPICS, check_reserved, path_of_topic
from moorline.wire.message import Answer
from moorline.wire.packed_rows import unpacked
from moorline.wire.staging import (
    QUEUES,
    CommitStaged,
    QueueRow,
    StagesCommitted,
    producer_of,
    query_principal,
    queue_rows_decoder,
)

log = logging.getLogger("moorline.groups")

NOTES_FILE = "notes.queue"
"""Holds the id of the queue of notes."""

OUTBOX_FILE = "outbox.queue"
"""Holds the id of the queue of rows on their way aside."""

Made = TypeVar("Made")


class StagedCommits:
    """Decides, publishes, and finishes what a start before this one decided. `thread` owns the store."""

    def __init__(
        self,
        store: StagingStore,
        disk: Disk,
        broker: TopicBroker,
        thread: Executor,
        topic_bytes_max: int,
    ) -> None:
        self.queues: NodeQueues | None = None
        self.committed_rows = 0
        self.aside_rows = 0
        self._topic_bytes_max = topic_bytes_max
        self._store = store
        self._disk = disk
        self._broker = broker
        self._streams = broker.streams
        self._thread = thread
        self._query_turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._queue_turn = asyncio.Lock()

    def check_room(self) -> None:
        if self._streams.is_disk_full:
            raise NodeDiskFull("the node's disk is nearly full: no rows are staged or published")

    def need_queues(self) -> NodeQueues:
        if self.queues is None:
            raise Unsupported("this node sends no staged rows to queues")
        return self.queues

    def in_thread(self, work: Callable[..., Made], *arguments: Any) -> "asyncio.Future[Made]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def _note(self, work: Callable[..., Made], *arguments: Any) -> Made:
        """A write to the commit log: when it fails nobody knows what is decided, and the node ends."""
        try:
            return await self.in_thread(work, *arguments)
        except (OSError, MoorlineError) as error:
            self._streams.commits.fail(StartError(f"the log of staged commits failed: {error}"))
            raise

    @contextlib.asynccontextmanager
    async def turn_of(self, query: str) -> AsyncIterator[None]:
        """One at a time for each query; a lock lives as long as somebody wants it."""
        lock, wanted = self._query_turns.get(query, (asyncio.Lock(), 0))
        self._query_turns[query] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._query_turns.pop(query)
            if wanted > 1:
                self._query_turns[query] = (lock, wanted - 1)

    async def commit(self, call: CommitStaged, rights: SessionRights) -> Answer:
        """Of a call whose query is its key."""
        if not call.stages:
            raise Malformed("a commit names at least one stage")
        if call.aside:
            check_topic(call.aside)
            check_reserved(call.aside)
        rows = sum(count for _, count, _ in call.stages)
        refused: Refused = Counter()
        async with self.turn_of(call.query):
            if await self.in_thread(self._store.is_decided, call.query, call.batch):
                last = await self.in_thread(self._store.last_batch, call.query)
                await self._finish_pending(call.query)
                return StagesCommitted(call.call, already=True, last=last)
            self.check_room()
            await self._finish_pending(call.query)
            topics = None if rights.everywhere(TOPICS) & WRITE else TopicsSeen()
            target = await self.in_thread(
                self._store.check_stages, call.query, call.batch, call.stages, topics
            )
            names = [name for name, _, _ in call.stages]
            if target == QUEUES:
                # One at a time: there is one note for all of them.
                async with self._queue_turn:
                    queues = self.need_queues()
                    counts, sizes, largest = await self.in_thread(self._rows_by_queue, names)
                    queues.owners.demand_send(rights, counts)
                    if call.aside:
                        check_bodies(largest, self._topic_bytes_max)
                        await self._own_queue(queues, OUTBOX_FILE)
                    check_queues(queues, Counter() if call.aside else counts)
                    check_stored(queues, Counter() if call.aside else sizes)
                    await self._own_queue(queues, NOTES_FILE)
                    batch = call.query, call.batch, target, names, call.aside
                    await self._note(self._store.decide, *batch)
                    refused = await self._send(queues, call.query)
            elif call.aside:
                raise Malformed("rows for topics go aside to no other topic: they are for queues")
            else:
                # What was granted when rows were staged may have been taken away.
                for topic in topics.names if topics is not None else ():
                    demand(rights, WRITE, path_of_topic(topic))
                await self._note(self._store.decide, call.query, call.batch, target, names)
                stored = await self._publish(call.query)
                if stored != rows:
                    # Nothing of a new batch can have been there before.
                    extra = {"query": call.query, "batch": call.batch, "rows": rows - stored}
                    log.error("rows of a staged commit were taken for duplicates", extra=extra)
        lost = refused.total()
        aside = lost if call.aside else 0
        return StagesCommitted(call.call, False, rows - lost, call.batch, named(refused), aside)

    async def go_on(self, query: str) -> None:
        """Behind a start."""
        async with self.turn_of(query):
            try:
                await self._finish_patiently(query)
            except (NotFound, JournalDamaged) as error:
                decided, _ = self._store.pending[query]
                log.error(
                    "a staged commit that was cut short cannot be finished: put its stages back from a "
                    "copy and start again, or write what is missing by another query",
                    extra={"query": query, "batch": decided.batch, "error": str(error)},
                )

    async def _finish_patiently(self, query: str) -> None:
        """Nobody waits for an answer: what is decided goes on as soon as there is room for it."""
        while True:
            try:
                await self._finish_pending(query)
            except OutcomeUnknown as error:
                if self._streams.commits.is_over or (self.queues and self.queues.commits.is_over):
                    raise
                extra = {"query": query, "why": str(error)}
                log.warning("a staged commit that was cut short waits", extra=extra)
            else:
                return

    async def _finish_pending(self, query: str) -> None:
        pending = self._store.pending.get(query)
        if pending is None:
            return
        decided, position = pending
        extra = {
            "query": query,
            "batch": decided.batch,
            "stage": position.stage,
            "row": position.row,
        }
        log.info("a staged commit that was cut short goes on", extra=extra)
        if decided.target == QUEUES:
            async with self._queue_turn:
                await self._send(self.need_queues(), query)
        else:
            await self._publish(query)

    # --- topics -----------------------------------------------------------------------------------

    async def _publish(self, query: str) -> int:
        """How many rows were stored now."""
        await self.in_thread(prepare)
        decided, start = self._store.pending[query]
        stored = since_bytes = since_stages = 0
        for place in range(start.stage, len(decided.stages)):
            stage = decided.stages[place]
            facts = await self.in_thread(self._store.facts, stage)
            whose = producer_of(query, facts.partition), query_principal(query)
            first = start.row if place == start.stage else 0
            async with self._chunks(stage, first) as chunks:
                async for chunk in chunks:
                    if not await self._streams.has_room_within(STAGED_ROOM_MS_MAX):
                        raise no_room()
                    stored += self._append(chunk, first, whose, decided.batch << 32)
                    since_bytes += len(chunk.rows)
                    if since_bytes > STAGED_NOTE_BYTES:
                        await self._streams.commits.durable()
                        done = StagePosition(place, chunk.upto_row)
                        await self._note(self._store.advance, query, done)
                        since_bytes = since_stages = 0
                    elif self._streams.store.batch_bytes > COMMIT_BYTES_MAX // 2:
                        await self._streams.commits.durable()
            since_stages += 1
            if since_stages >= STAGED_NOTE_STAGES_MAX:
                await self._streams.commits.durable()
                await self._note(self._store.advance, query, StagePosition(place + 1, 0))
                since_bytes = since_stages = 0
        await self._streams.commits.durable()
        await self._note(self._store.complete, query)
        return stored

    def _append(self, chunk: Chunk, first: int, whose: tuple[int, str], sequence: int) -> int:
        """Into the batch under way; rows that a start before this one has published are passed over."""
        rows, skip = unpacked(chunk.rows), max(first - chunk.first_row, 0)
        producer, publisher = whose
        stored = self._streams.store.append_packed(
            rows, skip, producer, sequence + chunk.first_row, publisher
        )
        self._broker.counts.published += stored
        self._broker.counts.duplicates += rows.count - skip - stored
        self.committed_rows += stored
        self._streams.commits.changed()
        return stored

    def _chunks(self, stage: bytes, first_row: int) -> ChunksAhead:
        return chunks_ahead(self._thread, self._store.chunks(stage, first_row))

    # --- queues -----------------------------------------------------------------------------------

    def _rows_by_queue(self, names: list[bytes]) -> tuple[Counter[bytes], Counter[bytes], int]:
        """How many rows each queue would get, the bytes that they count as, and the body of the largest."""
        counts: Counter[bytes] = Counter()
        sizes: Counter[bytes] = Counter()
        largest = 0
        for name in names:
            for chunk in self._store.chunks(name):
                rows = queue_rows_decoder.decode(chunk.rows)
                counts.update(row.queue for row in rows)
                for row in rows:
                    sizes[row.queue] += len(row.body) + RECORD_HEAD_BYTES
                largest = max(largest, *(len(row.body) for row in rows), 0)
        return counts, sizes, largest

    async def _own_queue(self, queues: NodeQueues, file: str) -> Queue:
        """A queue of the node's own, made durably before anything relies on it."""
        text = await self.in_thread(read_all, self._disk, file)
        found = queues.store.find(id_of(text.decode())) if text else None
        if found is None:
            found = queues.store.create(NODES_OWN)
            await durable(queues)
            await self.in_thread(self._disk.write_whole, file, text_of(found.id).encode())
        return found

    async def _send(self, queues: NodeQueues, query: str) -> Refused:
        """What queues refused: rows that went aside, where the commit has a topic for them."""
        decided, _ = self._store.pending[query]
        sending = Sending(queues, decided, await self._own_queue(queues, NOTES_FILE))
        if decided.aside:
            sending.outbox = await self._own_queue(queues, OUTBOX_FILE)
            await publish_leftovers(queues, sending.outbox, self._streams)
        await undisturbed(queues)
        start, is_emptied = noted(queues.store, sending.notes, decided), False
        for place in range(start.stage, len(decided.stages)):
            first = start.row if place == start.stage else 0
            facts = await self.in_thread(self._store.facts, decided.stages[place])
            async with self._chunks(decided.stages[place], first) as chunks:
                async for chunk in chunks:
                    rows = queue_rows_decoder.decode(chunk.rows)
                    upto = chunk.upto_row
                    for row in range(max(first, chunk.first_row), upto, STAGED_QUEUE_ROWS_PER_TURN):
                        end = min(row + STAGED_QUEUE_ROWS_PER_TURN, upto)
                        some = rows[row - chunk.first_row : end - chunk.first_row]
                        await undisturbed(queues)
                        aside = sending.turn(some, row, facts.partition, StagePosition(place, end))
                        self.committed_rows += len(some) - len(aside)
                        await durable(queues)
                        if sending.outbox is not None:
                            await publish_aside(queues, sending.outbox, self._streams, aside)
                            self.aside_rows += len(aside)
                            is_emptied = bool(aside)
        if is_emptied:
            # Behind its end nobody looks into the outbox: what was taken off it must be so for good.
            await durable(queues)
        await self._note(self._store.complete, query)
        for (queue, code), count in sending.refused.items():
            extra = {"query": query, "queue": text_of(queue), "code": code, "messages": count}
            log.warning("a queue refused rows of a staged commit", extra=extra)
        return sending.refused


class Sending:
    """The sends of one decision, turn by turn."""

    def __init__(self, queues: NodeQueues, decided: Decided, notes: Queue) -> None:
        self.refused: Refused = Counter()
        self.notes = notes
        self.outbox: Queue | None = None
        self._queues = queues
        self._decided = decided

    def turn(
        self, rows: list[QueueRow], first: int, partition: int, upto: StagePosition
    ) -> list[AsideRow]:
        """Rows and their note, without an await between them: so they are in one batch of the log.

        Those that are to be published from the outbox.
        """
        store, aside = self._queues.store, list[AsideRow]()
        for number, row in enumerate(rows, first):
            # Without a topic for what is refused, the quota was asked before the decision.
            is_decided = self.outbox is None
            code = self._queues.send_row(row.queue, row.body, is_decided=is_decided)
            if not code:
                continue
            self.refused[row.queue, code] += 1
            if self.outbox is not None:
                aside.append(aside_of(self._decided, partition, number, row, code))
                put_aside(store, self.outbox, aside[-1])
        leave_note(store, self.notes, self._decided, upto)
        return aside
