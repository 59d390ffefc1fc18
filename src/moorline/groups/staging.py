"""Room: groups. Staged writes at a node: stages of tasks, and commits that publish a batch exactly once.

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
gone: a node that was down for so long in the middle of a commit sends its rows to queues again. And a node
that starts with another number of shards in the middle of a commit does not find what it published behind
the last note: at most NOTE_BYTES come twice.)
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import xxhash

from moorline.config.settings import Streams as Settings
from moorline.core.queue import Queue
from moorline.errors import (
    MoorlineError,
    NodeDiskFull,
    NotFound,
    StartError,
    Unsupported,
)
from moorline.groups.staged_queues import (
    NodeQueues,
    check_queues,
    durable,
    leave_note,
    noted,
    send_row,
)
from moorline.groups.staged_rows import RowChecker
from moorline.groups.topics import TopicBroker
from moorline.ids import id_of, text_of
from moorline.journal.disk import Disk
from moorline.journal.segment_index import read_all
from moorline.journal.staging import Chunk, Place, StagingStore
from moorline.limits import (
    COMMIT_BYTES_MAX,
    DISK_LOOK_MS,
    MIB,
)
from moorline.net.clock import wall_ms
from moorline.net.session import Handlers, Session
from moorline.net.turns import Turns
from moorline.wire.message import Answer
from moorline.wire.segment import encode_headers
from moorline.wire.staging import (
    QUEUES,
    AbortStaged,
    CloseStage,
    CommitStaged,
    OpenStage,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
    StagesAborted,
    StagesCommitted,
    queue_rows_decoder,
    records_decoder,
)

log = logging.getLogger("moorline.groups")

NOTE_BYTES = 8 * MIB
"""Rows that are published between two notes of how far a commit came: a start looks at so many again."""

NOTE_STAGES_MAX = 1_024
"""Stages between two notes: each is a producer, and a shard must not forget one before it is noted."""

QUEUE_ROWS_PER_TURN = 1_000
"""Rows that go to queues in one turn of the loop, with their note: about 3 ms."""

LEFTOVERS_MS = 3_600_000
"""Time between two looks for stages that nobody wants any more."""

HOLD = "staging"
"""Why sessions are held: their rows wait for the disk."""

NOTES_FILE = "notes.queue"
"""Holds the id of the queue of notes."""

NOTES_OWNER = b"moorline: staged commits"
"""The owner of that queue: no certificate has this for a fingerprint."""

Made = TypeVar("Made")


class Staging:
    """Answers the calls of staged writes. All disk work is in one thread, which owns the store."""

    def __init__(
        self, store: StagingStore, disk: Disk, broker: TopicBroker, settings: Settings
    ) -> None:
        self.committed_rows = 0
        self._store = store
        self._disk = disk
        self._broker = broker
        self._streams = broker.streams
        self._checker = RowChecker(settings.message_bytes_max)
        self._queues: NodeQueues | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-staging")
        self._turns = Turns()
        self._query_turns: dict[str, tuple[asyncio.Lock, int]] = {}
        self._queue_turn = asyncio.Lock()
        self._open: dict[Session, set[bytes]] = {}
        self._waiting_bytes = 0
        self._held: set[Session] = set()
        self._is_closed = False

    def handlers(self) -> Handlers:
        take_rows = self._turns.later(self._take_rows)

        def rows(session: Session, calls: list[StageRows]) -> Any:
            self._waiting_bytes += sum(len(call.rows) for call in calls)
            if self._waiting_bytes > COMMIT_BYTES_MAX:
                self._held.add(session)
                session.hold_reading(HOLD)
            return take_rows(session, calls)

        return {
            OpenStage: self._turns.later(self._open_stage),
            StageRows: rows,
            CloseStage: self._turns.later(self._close_stage),
            CommitStaged: self._turns.later(self._commit),
            AbortStaged: self._turns.later(self._abort),
        }

    async def start(self) -> None:
        """What was decided before the start is published, beside the node's other work."""
        await self._in_thread(self._store.open)
        for decided, _ in list(self._store.pending.values()):
            if decided.target != QUEUES:
                self._turns.spawn(self._go_on(decided.query))

    def serve_queues(self, queues: NodeQueues) -> None:
        """From now on rows can go to queues too; what was decided before is sent."""
        self._queues = queues
        for decided, _ in list(self._store.pending.values()):
            if decided.target == QUEUES:
                self._turns.spawn(self._go_on(decided.query))

    async def remove_leftovers_forever(self) -> None:
        while True:
            await asyncio.sleep(LEFTOVERS_MS / 1_000)
            try:
                removed = await self._in_thread(self._store.expire)
            except OSError:
                log.exception("leftovers of staged writes were not removed")
            else:
                if removed:
                    log.info("removed stages that nobody committed", extra={"stages": removed})

    def close(self) -> None:
        """A commit that is cut short here goes on with the next start."""
        self._is_closed = True
        self._turns.close()
        self._thread.shutdown()
        self._store.close()

    def _in_thread(self, work: Callable[..., Made], *arguments: Any) -> "asyncio.Future[Made]":
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def _note(self, work: Callable[..., Made], *arguments: Any) -> Made:
        """A write to the commit log: when it fails nobody knows what is decided, and the node ends."""
        try:
            return await self._in_thread(work, *arguments)
        except (OSError, MoorlineError) as error:
            failed = self._streams.failed
            if not failed.done():
                failed.set_result(StartError(f"the log of staged commits failed: {error}"))
            raise

    # --- stages -----------------------------------------------------------------------------------

    async def _open_stage(self, session: Session, call: OpenStage) -> Answer:
        self._check_room()
        if call.target == QUEUES:
            self._need_queues()
        if session not in self._open:
            self._open[session] = set()
            session.on_end.append(lambda: self._left(session))
        stage = await self._in_thread(
            self._store.begin, call.query, call.batch, call.partition, call.attempt, call.target
        )
        if session not in self._open:  # it left meanwhile
            await self._in_thread(self._store.discard, stage)
            raise NotFound("the session of this stage is over")
        self._open[session].add(stage)
        return StageOpened(call.call, stage)

    async def _take_rows(self, session: Session, call: StageRows) -> Answer:
        try:
            self._check_owner(session, call.stage)
            self._check_room()
            try:
                count = await self._in_thread(self._add_rows, call)
            except (OSError, MoorlineError):
                await self._give_up(session, call.stage)
                raise
            return RowsStaged(call.call, count)
        finally:
            self._waiting_bytes -= len(call.rows)
            if self._held and self._waiting_bytes < COMMIT_BYTES_MAX // 2:
                for held in self._held:
                    held.release_reading(HOLD)
                self._held.clear()

    def _add_rows(self, call: StageRows) -> int:
        target = self._store.facts(call.stage).target
        if target == QUEUES:
            assert self._queues is not None
            bytes_max = self._queues.settings.message_bytes_max
            count = self._checker.check_queue_rows(call.rows, bytes_max)
        else:
            count = self._checker.check_records(call.rows)
        return self._store.append(call.stage, call.rows, count)

    async def _close_stage(self, session: Session, call: CloseStage) -> Answer:
        self._check_owner(session, call.stage)
        try:
            await self._in_thread(self._store.finish, call.stage, call.count, call.hash)
        except (OSError, MoorlineError):
            await self._give_up(session, call.stage)
            raise
        self._open.get(session, set()).discard(call.stage)
        return StageClosed(call.call, call.count)

    async def _abort(self, session: Session, call: AbortStaged) -> Answer:  # noqa: ARG002
        # Not while a commit of the query is on its way: it may decide on these.
        async with self._turn_of(call.query):
            removed = await self._in_thread(self._store.abort, call.query, call.batch, call.stages)
        return StagesAborted(call.call, removed)

    async def _give_up(self, session: Session, stage: bytes) -> None:
        self._open.get(session, set()).discard(stage)
        await self._in_thread(self._store.discard, stage)

    def _left(self, session: Session) -> None:
        for stage in self._open.pop(session, ()):
            if not self._is_closed:
                self._thread.submit(self._store.discard, stage)

    def _check_owner(self, session: Session, stage: bytes) -> None:
        if stage not in self._open.get(session, ()):
            raise NotFound("this session has no such stage open")

    def _check_room(self) -> None:
        if self._streams.is_disk_full:
            raise NodeDiskFull("the node's disk is nearly full: no rows are staged or published")

    def _need_queues(self) -> NodeQueues:
        if self._queues is None:
            raise Unsupported("this node sends no staged rows to queues")
        return self._queues

    # --- commits ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _turn_of(self, query: str) -> AsyncIterator[None]:
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

    async def _commit(self, session: Session, call: CommitStaged) -> Answer:  # noqa: ARG002
        async with self._turn_of(call.query):
            if call.batch <= await self._in_thread(self._store.last_batch, call.query):
                await self._finish_pending(call.query)
                return StagesCommitted(call.call, already=True)
            self._check_room()
            await self._finish_pending(call.query)
            target = await self._in_thread(self._store.check, call.query, call.batch, call.stages)
            names = [name for name, _, _ in call.stages]
            if target == QUEUES:
                # One at a time: there is one note for all of them.
                async with self._queue_turn:
                    queues = self._need_queues()
                    counts = await self._in_thread(self._rows_by_queue, names)
                    check_queues(queues, counts)
                    await self._notes_queue(queues)
                    await self._note(self._store.decide, call.query, call.batch, target, names)
                    refused = await self._send(queues, call.query)
            else:
                await self._note(self._store.decide, call.query, call.batch, target, names)
                refused = await self._publish(call.query)
        rows = sum(count for _, count, _ in call.stages)
        lost = sum(count for _, _, count in refused)
        return StagesCommitted(call.call, already=False, published=rows - lost, refused=refused)

    async def _go_on(self, query: str) -> None:
        async with self._turn_of(query):
            await self._finish_pending(query)

    async def _finish_pending(self, query: str) -> None:
        pending = self._store.pending.get(query)
        if pending is None:
            return
        decided, place = pending
        extra = {"query": query, "batch": decided.batch, "stage": place.stage, "row": place.row}
        log.info("a staged commit that was cut short goes on", extra=extra)
        if decided.target == QUEUES:
            async with self._queue_turn:
                await self._send(self._need_queues(), query)
        else:
            await self._publish(query)

    # --- topics -----------------------------------------------------------------------------------

    async def _publish(self, query: str) -> list[tuple[str, str, int]]:
        decided, start = self._store.pending[query]
        since_bytes = since_stages = 0
        for place in range(start.stage, len(decided.stages)):
            stage = decided.stages[place]
            facts = await self._in_thread(self._store.facts, stage)
            name = f"{query}/{facts.partition}"
            producer = xxhash.xxh3_64_intdigest(name.encode()) or 1
            first = start.row if place == start.stage else 0
            async for chunk in self._chunks(stage, first):
                while self._streams.is_disk_full:  # noqa: ASYNC110 - a look a second is enough
                    await asyncio.sleep(DISK_LOOK_MS / 1_000)
                self._append(chunk, first, producer, decided.batch << 32)
                since_bytes += len(chunk.rows)
                if since_bytes > NOTE_BYTES:
                    await self._stored()
                    done = Place(place, chunk.upto_row)
                    await self._note(self._store.advance, query, done)
                    since_bytes = since_stages = 0
                elif self._streams.store.batch_bytes > COMMIT_BYTES_MAX // 2:
                    await self._stored()
            since_stages += 1
            if since_stages >= NOTE_STAGES_MAX:
                await self._stored()
                await self._note(self._store.advance, query, Place(place + 1, 0))
                since_bytes = since_stages = 0
        await self._stored()
        await self._note(self._store.complete, query)
        return []

    def _append(self, chunk: Chunk, first: int, producer: int, sequence: int) -> None:
        """Into the batch under way; rows that a start before this one has published are passed over."""
        append, stored, skip = self._streams.store.append, 0, max(first - chunk.first_row, 0)
        records = records_decoder.decode(chunk.rows)
        for row, record in enumerate(records[skip:], sequence + chunk.first_row + skip):
            _, offset = append(
                record.topic,
                record.body,
                record.key,
                encode_headers(record.headers) if record.headers else b"",
                record.ttl_s,
                record.flags,
                producer,
                row,
            )
            stored += offset >= 0
        self._broker.counts.published += stored
        self._broker.counts.duplicates += len(records) - skip - stored
        self.committed_rows += stored
        self._streams.changed()

    async def _stored(self) -> None:
        """Returns when what is in the batch under way is stored."""
        stored = asyncio.Event()
        self._streams.when_stored(stored.set)
        await stored.wait()

    async def _chunks(self, stage: bytes, first_row: int = 0) -> AsyncIterator[Chunk]:
        """Read in the thread, one ahead of what is needed; the loop has its turn between two."""
        chunks: Iterator[Chunk] = self._store.chunks(stage, first_row)
        ahead = self._in_thread(next, chunks, None)
        while (chunk := await ahead) is not None:
            ahead = self._in_thread(next, chunks, None)
            yield chunk

    # --- queues -----------------------------------------------------------------------------------

    def _rows_by_queue(self, names: list[bytes]) -> Counter[bytes]:
        counts: Counter[bytes] = Counter()
        for name in names:
            for chunk in self._store.chunks(name):
                counts.update(row.queue for row in queue_rows_decoder.decode(chunk.rows))
        return counts

    async def _notes_queue(self, queues: NodeQueues) -> Queue:
        """The queue of notes, made durably before anything relies on it."""
        text = await self._in_thread(read_all, self._disk, NOTES_FILE)
        found = queues.store.find(id_of(text.decode())) if text else None
        if found is None:
            found = queues.store.create(NOTES_OWNER)
            await durable(queues)
            await self._in_thread(self._disk.write_whole, NOTES_FILE, text_of(found.id).encode())
        return found

    async def _send(self, queues: NodeQueues, query: str) -> list[tuple[str, str, int]]:
        decided, _ = self._store.pending[query]
        notes = await self._notes_queue(queues)
        start = noted(queues.store, notes, decided)
        refused: Counter[tuple[bytes, str]] = Counter()
        for place in range(start.stage, len(decided.stages)):
            first = start.row if place == start.stage else 0
            async for chunk in self._chunks(decided.stages[place], first):
                rows = queue_rows_decoder.decode(chunk.rows)
                upto = chunk.upto_row
                for row in range(max(first, chunk.first_row), upto, QUEUE_ROWS_PER_TURN):
                    end = min(row + QUEUE_ROWS_PER_TURN, upto)
                    some = rows[row - chunk.first_row : end - chunk.first_row]
                    # Without an await between the two, so that they are in one batch of the log.
                    for one in some:
                        code = send_row(queues.store, one.queue, one.body)
                        if code:
                            refused[one.queue, code] += 1
                    leave_note(queues.store, notes, decided, Place(place, end))
                    queues.counts.stored += len(some)
                    self.committed_rows += len(some)
                    await durable(queues)
        await self._note(self._store.complete, query)
        named = [(text_of(queue), code, count) for (queue, code), count in refused.items()]
        for queue, code, count in named:
            extra = {"query": query, "queue": queue, "code": code, "messages": count}
            log.warning("a queue was closed between a decision and its sends", extra=extra)
        return named


@contextlib.asynccontextmanager
async def open_staging(
    disk: Disk, broker: TopicBroker, settings: Settings
) -> AsyncIterator[Staging]:
    """The staged writes of a data folder."""
    store = StagingStore(disk, lambda: wall_ms() // 1_000, sync=settings.sync == "power")
    staging = Staging(store, disk, broker, settings)
    leftovers = asyncio.create_task(staging.remove_leftovers_forever())
    try:
        await staging.start()
        yield staging
    finally:
        leftovers.cancel()
        staging.close()
