"""Room: topics. The streams of this node: group commit of what is published, readers woken, upkeep.

A commit begins as soon as the one before it is done, or a moment later where a crowd publishes; what arrives
meanwhile is the next one. Readers see a message when its publisher is answered, not before.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from moorline.core.frames.block import Block
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.errors import MoorlineError, StartError
from moorline.journal.disk_watch import FillsDisk
from moorline.journal.streams.dropped import Dropped
from moorline.journal.streams.inspection import StreamProblem
from moorline.journal.streams.store import StreamBatch, StreamStore
from moorline.limits import (
    COMMIT_BYTES_MAX,
    DAMAGE_LINES_MAX,
    FILES_LOOK_MS,
    STREAM_BUSY_MESSAGES,
    STREAM_BUSY_MS,
    STREAM_READ_BYTES_MAX,
    STREAM_SEALS_PER_LOOK,
    STREAM_UPKEEP_MS,
)
from moorline.net.session import Session
from moorline.net.trusted_clock import TrustedClock
from moorline.wire.message import Answer

log = logging.getLogger("moorline.groups")

HOLD = "stream commit"
"""Why sessions are held: messages wait for the disk."""


class LocalStreams(FillsDisk):
    """The store's disk work, fitted into the event loop."""

    def __init__(self, store: StreamStore, node: str, clock: TrustedClock | None = None) -> None:
        super().__init__()
        self.store = store
        self.clock = clock or TrustedClock()
        self.node = node
        self.failed: asyncio.Future[MoorlineError] = asyncio.get_running_loop().create_future()
        self.commits = 0
        self.dropped_messages = 0
        self.commit_seconds: Callable[[float], None] = lambda _: None
        self.may_answer: Callable[[], bool] = lambda: True
        """Whether this process is still the one that holds the node's identity: asked at every commit."""
        self.moved: list[Callable[[list[int]], None]] = []
        """Called with the shards that have new messages."""
        self.reshaped: list[Callable[[list[int]], None]] = []
        """Called with the shards whose generations have changed."""
        self._waiting: dict[int, list[Callable[[], None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-streams")
        self._due = False
        self._writing = False
        self._next_s = 0.0
        """No commit begins before that time of the loop."""
        self._unanswered: tuple[StreamBatch, float] | None = None
        """Written, and held back because our identity may be another's."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._files_looked_s = self._loop.time()
        self._held: set[Session] = set()
        self._generations = self._newest()

    # --- commits ----------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something is in the batch: commit it as soon as can be."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._commit)

    def hold_if_behind(self, session: Session) -> None:
        """Stops reading from a publisher while the disk does not keep up."""
        if self.store.batch_bytes > COMMIT_BYTES_MAX or not self.may_answer():
            self._held.add(session)
            session.hold_reading(HOLD)

    def answer(self, session: Session, answer: Answer) -> None:
        """Answers a call when what is in the batch now is stored."""
        self.store.answers.append((session, answer))

    def when_stored(self, stored: Callable[[], None]) -> None:
        """Calls back when what is in the batch now is stored."""
        self.store.answers.append((None, stored))
        self.changed()

    async def stored(self) -> None:
        """Returns when what is in the batch now is stored."""
        stored = asyncio.Event()
        self.when_stored(stored.set)
        await stored.wait()

    def _commit(self) -> None:
        self._due = False
        if self._writing or self.failed.done() or not self.may_answer():
            return
        wait_s = self._next_s - self._loop.time()
        if wait_s > 0:
            self._due = True
            self._loop.call_later(wait_s, self._commit)
            return
        batch = self.store.take_batch()
        if batch is None:
            return
        self._writing = True
        self._quiet.clear()
        started = self._loop.time()
        if self.store.is_quick(batch):
            self._loop.call_soon(self._write_here, batch, started)
            return
        written = self._loop.run_in_executor(self._thread, self.store.write, batch)
        written.add_done_callback(lambda done: self._written(batch, done, started))

    def _write_here(self, batch: StreamBatch, started_s: float) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        try:
            self.store.write(batch)
            done.set_result(None)
        except Exception as error:  # whatever it was, nothing may be promised any more
            done.set_exception(error)
        self._written(batch, done, started_s)

    def go_on(self) -> None:
        """The identity is ours again: what was held back is answered, and the next commit begins."""
        if self._unanswered is not None:
            (batch, started_s), self._unanswered = self._unanswered, None
            self._finish(batch, started_s)
        self._release()
        self.changed()

    def _written(self, batch: StreamBatch, done: "asyncio.Future[None]", started_s: float) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._writing = False
            self._fail(error)
            self._quiet.set()
        elif self.may_answer():
            self._finish(batch, started_s)
        else:
            # Stored in this folder; but the node may be another process by now, on a copy that lacks it.
            self._unanswered = (batch, started_s)
            self._quiet.set()

    def _finish(self, batch: StreamBatch, started_s: float) -> None:
        self._writing = False
        self.commit_seconds(self._loop.time() - started_s)
        self.commits += 1
        if batch.count >= STREAM_BUSY_MESSAGES and self.store.is_synced:
            # A crowd: fewer and larger commits carry more. Whoever publishes alone never waits.
            self._next_s = started_s + STREAM_BUSY_MS / 1_000
        touched = self.store.committed(batch)
        self._release()
        # The next write begins before anybody is answered: the disk works while the loop talks.
        self._commit()
        answers: dict[Session, list[Answer]] = {}
        for session, answer in batch.answers:
            if callable(answer):
                self._call_back(answer)
            else:
                answers.setdefault(session, []).append(answer)
        for session, ready in answers.items():
            session.answer(ready)
        self._wake(touched)
        if not self._writing:
            self._quiet.set()

    def _release(self) -> None:
        for session in self._held:
            session.release_reading(HOLD)
        self._held.clear()

    def _call_back(self, stored: Callable[[], None]) -> None:
        try:
            stored()
        except Exception:
            # Whoever gave it may be gone: the others of the batch are to hear of it all the same.
            log.exception("nobody could be told that a message is stored")

    def _wake(self, shards: list[int]) -> None:
        for shard in shards:
            for wake in self._waiting.pop(shard, ()):
                wake()
        for moved in self.moved:
            moved(shards)
        self.look_for_new_generations()

    def look_for_new_generations(self) -> None:
        newest = self._newest()
        if newest != self._generations:
            shards = [shard for shard in newest if newest[shard] != self._generations.get(shard)]
            self._generations = newest
            self._tell_reshaped(shards)

    def _newest(self) -> dict[int, int]:
        return self.store.newest_generations()

    def _tell_reshaped(self, shards: list[int]) -> None:
        for reshaped in self.reshaped:
            reshaped(shards)
        for shard in shards:  # a reader at the end of a sealed generation must look again
            for wake in self._waiting.pop(shard, ()):
                wake()

    def _fail(self, error: BaseException) -> None:
        """After a failed write nothing may be promised any more: the node must end."""
        if self.failed.done():
            return
        if not isinstance(error, MoorlineError):
            error = StartError(f"the disk of the streams failed: {error}")
        self.failed.set_result(error)

    # --- reading ----------------------------------------------------------------------------------

    async def read(
        self, stream: Stream, offset: int, bytes_max: int = STREAM_READ_BYTES_MAX
    ) -> Block | Gap | None:
        """What follows the offset in that stream of ours, None at its end; from the disk in a thread."""
        _, shard, generation = stream
        if self.store.read_is_cached(shard, generation, offset):
            return self.store.read(shard, generation, offset, bytes_max)
        return await asyncio.to_thread(self.store.read, shard, generation, offset, bytes_max)

    async def offsets_at(self, time_us: int) -> dict[int, int]:
        """The first offset at or after a time, in each shard; its end where all are older."""
        shards = sorted(self.store.shard_numbers)
        return {
            shard: await asyncio.to_thread(self.store.offset_at, shard, time_us) for shard in shards
        }

    def when_moved(self, shard: int, wake: Callable[[], None]) -> None:
        """Calls back once, when the shard has something new."""
        self._waiting.setdefault(shard, []).append(wake)

    def forget(self, shard: int, wake: Callable[[], None]) -> None:
        waiting = self._waiting.get(shard)
        if waiting is not None and wake in waiting:
            waiting.remove(wake)
            if not waiting:
                del self._waiting[shard]

    def shard_extents(self, shards: Iterable[int] | None = None) -> dict[Shard, tuple[Extent, ...]]:
        """All streams of these shards, oldest first."""
        wanted = self.store.shard_numbers if shards is None else shards
        found = [self.store.extents_of(number) for number in wanted]
        return {extents[0].stream.shard: extents for extents in found if extents}

    # --- upkeep -----------------------------------------------------------------------------------

    async def keep_up_forever(self) -> None:
        """Rolls what is too old, seals what was rolled, drops what retention says."""
        while True:
            await self._keep_up()
            await asyncio.sleep(STREAM_UPKEEP_MS / 1_000)

    async def _keep_up(self) -> None:
        for step in (self._roll, self._drop, self._seal, self._look_at_files, self._log_damage):
            try:
                done = step()
                if done is not None:
                    await done
            except Exception:
                # Neither the other steps nor the next round may depend on it: without them nothing would be
                # sealed or dropped any more, until the disk is full.
                what = {"step": step.__name__.strip("_")}
                log.exception("the upkeep of streams was interrupted", extra=what)

    async def _look_at_files(self) -> None:
        """A file that somebody removes is held by its name alone: nothing else would tell until a start."""
        if self._loop.time() < self._files_looked_s + FILES_LOOK_MS / 1_000:
            return
        self._files_looked_s = self._loop.time()
        problems = await asyncio.to_thread(self.store.look_at_files)
        log_problems(problems, self.node)
        if problems:
            self.changed()  # where the newest of a shard is gone, a new one begins
            self._tell_reshaped(sorted({one.shard for one in problems}))

    def _log_damage(self) -> None:
        """Once for each place, however it was found: by a reader, a seal or the start."""
        found = self.store.new_damage()
        for stream, gap in found[:DAMAGE_LINES_MAX]:
            log.error(
                "messages of a stream are damaged or gone",
                extra={
                    "stream": str(stream),
                    "first": gap.first,
                    "upto": gap.upto,
                    "messages": gap.upto - gap.first,
                },
            )
        rest = found[DAMAGE_LINES_MAX:]
        if rest:
            # Each is told to whoever reads there; a log of a hundred thousand lines tells nobody anything.
            messages = sum(gap.upto - gap.first for _, gap in rest)
            extra = {
                "places": len(rest),
                "messages": messages,
                "streams": len({str(s) for s, _ in rest}),
            }
            log.error("messages of streams are damaged or gone in more places", extra=extra)

    def _roll(self) -> None:
        if self.store.roll(self.clock.expiry_us()):
            self.changed()  # a commit begins the new generations, also where nobody publishes

    async def _seal(self) -> None:
        troubled: set[int] = set()
        # A start may find thousands: what else there is to look after comes in between.
        for shard, generation in self.store.unsealed()[:STREAM_SEALS_PER_LOOK]:
            if shard in troubled:
                continue  # the older one first
            try:
                seal = await asyncio.to_thread(self.store.seal(shard, generation))
            except Exception as error:
                # One bad file must not keep the other shards from being sealed, and so from being dropped.
                troubled.add(shard)
                what = {"shard": shard, "generation": generation, "error": str(error)}
                is_ours = not isinstance(error, OSError)
                log.error("a generation cannot be sealed now", extra=what, exc_info=is_ours)
                continue
            self.store.sealed(shard, generation, seal)
            log.info("sealed", extra={"shard": shard, "generation": generation})

    async def _drop(self) -> None:
        # One after the other, each with its note synced: there may be thousands, and others have their turn.
        while (drop := self.store.next_drop(self.clock.expiry_us())) is not None:
            await asyncio.to_thread(drop.note)
            drop.take_effect()
            self._dropped(drop.gone)
            await asyncio.to_thread(drop.remove)

    def _dropped(self, one: Dropped) -> None:
        self.dropped_messages += one.count
        log.warning(
            "retention dropped messages",
            extra={
                "stream": f"{self.node}/{one.shard}/{one.generation}",
                "messages": one.count,
                "first": one.first,
                "upto": one.upto,
                "reason": one.reason,
            },
        )
        self._tell_reshaped([one.shard])

    async def close(self) -> None:
        """Commits what is left and says how far it came, if it may still be answered."""
        while not self.failed.done() and (self._writing or self.store.batch_bytes):
            if self._unanswered is not None or not (self._writing or self.may_answer()):
                break
            self._next_s = 0.0
            self._commit()
            await self._quiet.wait()
        if not self.failed.done() and not self._writing:
            await asyncio.to_thread(self.store.leave)
        self._thread.shutdown()


def log_problems(problems: Iterable[StreamProblem], node: str) -> None:
    """What is not as it was left: the first by their names, and how many more."""
    found = list(problems)
    for one in found[:DAMAGE_LINES_MAX]:
        log.error(
            "a file of the streams is not as it was left",
            extra={
                "kind": one.kind,
                "stream": f"{node}/{one.shard}/{one.generation}",
                "what": one.text,
                "messages": one.lost,
            },
        )
    rest = found[DAMAGE_LINES_MAX:]
    if rest:
        extra = {"files": len(rest), "messages": sum(one.lost for one in rest)}
        log.error("more files of the streams are not as they were left", extra=extra)
