"""Room: net. Group commit: what changed is written batch by batch, and answered when it is durable.

    changed ─► take_batch ─► write, in a thread ─► committed ─► the next one begins ─► the answers leave
               with the answers so far

A commit begins as soon as the one before it is done; what arrives meanwhile is the next one. Nobody waits for
a timer, unless the store asks for a pause: a lone client is answered after one fsync, a crowd shares it.

While this process may not answer, because its identity may be another's, no commit begins. One that was on
its way is written, and neither committed nor answered until the identity is ours again: nobody sees what
another process, on a copy of the folder, may lack. After a write that failed nothing is promised any more,
unless all that it lacked was room.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, Protocol, TypeVar

from moorline.errors import CannotCut, DiskFull, MoorlineError, OutcomeUnknown, StartError
from moorline.limits import COMMIT_BYTES_MAX, DISK_LOOK_MS
from moorline.wire.message import Answer

log = logging.getLogger("moorline.net")

Batch = TypeVar("Batch")


class CommitStore(Protocol[Batch]):
    """What is committed. All but `write` is called on the loop, and one batch is on its way at a time."""

    @property
    def batch_bytes(self) -> int:
        """How much waits for the next commit."""
        ...

    def take_batch(self) -> Batch | None:
        """What changed since the last call; None if nothing did."""
        ...

    def is_quick(self, batch: Batch) -> bool:
        """Whether to write it is less work than to hand it to a thread. Nothing that syncs is."""
        ...

    def write(self, batch: Batch) -> None:
        """When this returns, the batch is as durable as it will be. Runs in a thread, unless it is quick."""
        ...

    def committed(self, batch: Batch) -> None:
        """It is durable, and we may say so: from now on readers may see it."""
        ...


Begin = Callable[[Batch, Callable[[BaseException | None], None]], bool]
"""Writes a batch on the loop and calls back when it is durable, or why it is not; False: for a thread."""


class Caller(Protocol):
    """Whoever sent what is committed, and is answered: a session is one."""

    def answer(self, answers: list[Answer]) -> None: ...
    def hold_reading(self, reason: str) -> None: ...
    def release_reading(self, reason: str) -> None: ...


class _Commit(NamedTuple, Generic[Batch]):
    """One commit on its way: a batch, or None where only somebody waits, and who is to hear of it."""

    batch: Batch | None
    answers: dict[Caller, list[Answer]]
    callbacks: list[Callable[[], None]]
    started_s: float


class GroupCommit(Generic[Batch]):
    """Commits the changes of one store; `name` is what is in it, such as "queues".

    `answered` is called behind the answers of each batch. `pause_ms` says how long after the beginning of a
    commit the next one begins at the earliest. With `waits_for_room` a `write` that ends with `DiskFull` has
    left the store as it was: it is tried again until there is room, and nobody is answered before. `begin` is
    asked first, of a store that can have the disk work without a thread.
    """

    def __init__(
        self,
        store: CommitStore[Batch],
        name: str,
        *,
        answered: Callable[[Batch], None],
        pause_ms: Callable[[Batch], int] = lambda _: 0,
        waits_for_room: bool = False,
        begin: Begin[Batch] | None = None,
    ) -> None:
        self.failed: asyncio.Future[MoorlineError] = asyncio.get_running_loop().create_future()
        """Why nothing is promised any more: the node must end."""
        self.count = 0
        self.took_s = 0.0
        """From the start of the last commit to its end."""
        self.commit_seconds: Callable[[float], None] = lambda _: None
        self.may_answer: Callable[[], bool] = lambda: True
        """Whether this process is still the one that holds the node's identity: asked at every commit."""
        self._store = store
        self._name = name
        self._hold = f"commit of {name}"
        """Why callers are held: changes wait for the disk."""
        self._answered = answered
        self._pause_ms = pause_ms
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"moorline-{name}")
        self._answers: dict[Caller, list[Answer]] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._held: set[Caller] = set()
        self._is_due = False
        self._is_wanted = False
        """Something changed while one was under way."""
        self._stops = 0
        """For so many a backup is at its cut: no commit begins."""
        self._earliest_s = 0.0
        """No commit begins before that time of the loop."""
        self._under_way: _Commit[Batch] | None = None
        self._is_held_back = False
        """The one under way is written, and waits until we may answer again."""
        self._settled = asyncio.Event()
        """Nothing is being written."""
        self._settled.set()
        self._waits_for_room = waits_for_room
        self.lacks_room = False
        """The one under way could not be written, and waits until the disk has room."""
        self._next: asyncio.Future[None] | None = None
        self._over: asyncio.Future[MoorlineError] = self._loop.create_future()
        """What those are told who wait for a commit that will not come."""

    # --- what a batch is for ----------------------------------------------------------------------

    def changed(self) -> None:
        """Something is in the batch: commit it as soon as can be."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._commit)

    def answer(self, caller: Caller, answer: Answer) -> None:
        """Answers a call when what is in the batch now is durable; `changed` is still to be called."""
        found = self._answers.get(caller)
        if found is None:
            self._answers[caller] = [answer]
        else:
            found.append(answer)

    def answer_all(self, caller: Caller, answers: list[Answer]) -> None:
        """As `answer`, of many; the list is kept."""
        found = self._answers.get(caller)
        if found is None:
            self._answers[caller] = answers
        else:
            found += answers

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Calls back when what is in the batch now is durable; never, if that cannot be."""
        self._callbacks.append(callback)
        self.changed()

    async def durable(self) -> None:
        """Returns when what is in the batch now is durable.

        Where the disk fails or is full, or the node stops first, it raises: nobody knows then what is stored.
        """
        durable: asyncio.Future[None] = self._loop.create_future()
        # Whoever waits may be cancelled before the commit is done.
        self.when_durable(lambda: None if durable.done() else durable.set_result(None))
        await self._wait_for(durable)
        if not durable.done():
            raise OutcomeUnknown(f"{self._over.result()}: whether it is stored is unknown")

    async def next(self) -> None:
        """Returns at the next commit, or when there will be none any more."""
        if self._next is None:
            self._next = self._loop.create_future()
        await self._wait_for(self._next)

    async def _wait_for(self, awaited: "asyncio.Future[None]") -> None:
        either: list[asyncio.Future[None] | asyncio.Future[MoorlineError]] = [awaited, self._over]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    def hold_if_behind(self, caller: Caller) -> None:
        """Stops reading from a sender while the disk does not keep up, or nobody may be answered."""
        if self._store.batch_bytes > COMMIT_BYTES_MAX or not self.may_answer():
            self._held.add(caller)
            caller.hold_reading(self._hold)

    async def between_batches(self, work: Callable[[], None]) -> None:
        """Does it in the thread that writes, while no batch is being written there; a sync that `begin` has
        asked for may be under way."""
        await self._loop.run_in_executor(self._thread, work)

    @contextlib.asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """None is on its way meanwhile, and none begins: the files have what was answered, and all of it.

        Whoever holds it lets go within milliseconds: all senders wait.
        """
        self._stops += 1
        try:
            while self._under_way is not None:
                if self._over.done() or self._is_held_back or self.lacks_room:
                    raise CannotCut(f"the {self._name} cannot be written now: try again later")
                await self._settled.wait()
            if self._over.done() or not self.may_answer():
                raise CannotCut(f"the {self._name} are not served now: try again later")
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                self.changed()

    # --- one commit -------------------------------------------------------------------------------

    def _commit(self, *, is_behind_another: bool = False) -> None:
        self._is_due = False
        self._is_wanted = self._under_way is not None
        if self._is_wanted or self._stops or self._over.done() or not self.may_answer():
            return
        now_s = self._loop.time()
        if now_s < self._earliest_s:
            self._is_due = True
            self._loop.call_at(self._earliest_s, self._commit)
            return
        batch = self._store.take_batch()
        if batch is None and not self._answers and not self._callbacks:
            return
        commit = _Commit(batch, self._answers, self._callbacks, now_s)
        self._answers, self._callbacks = {}, []
        self._under_way = commit
        if is_behind_another and (batch is None or self._store.is_quick(batch)):
            # In a turn of its own: the answers of the commit before it leave first.
            self._settled.clear()
            self._loop.call_soon(self._write_here, commit)
        else:
            self._write(commit)

    def _write(self, commit: _Commit[Batch]) -> None:
        if self._over.done():
            return
        self._settled.clear()
        batch = commit.batch
        if batch is None or self._store.is_quick(batch):
            self._write_here(commit)
            return
        if self._begin is not None and self._has_begun(self._begin, commit, batch):
            return
        # In the thread, although a lone client would be answered sooner without the way there and back: a
        # disk that hangs must not take the loop with it.
        written = self._loop.run_in_executor(self._thread, self._store.write, batch)
        written.add_done_callback(
            lambda done: self._written(
                commit, OSError("a write was given up") if done.cancelled() else done.exception()
            )
        )

    def _has_begun(self, begin: Begin[Batch], commit: _Commit[Batch], batch: Batch) -> bool:
        try:
            return begin(batch, lambda error: self._written(commit, error))
        except Exception as error:
            self._written(commit, error)
            return True

    def _write_here(self, commit: _Commit[Batch]) -> None:
        try:
            if commit.batch is not None:
                self._store.write(commit.batch)
        except Exception as error:
            self._written(commit, error)
        else:
            self._written(commit, None)

    def _written(self, commit: _Commit[Batch], error: BaseException | None) -> None:
        if self.failed.done():
            return
        if self._waits_for_room and isinstance(error, DiskFull):
            self._wait_for_room(commit, error)
            return
        self.lacks_room = False
        if error is not None:
            self.fail(error)
        elif self.may_answer():
            self._finish(commit)
        else:
            # Stored in this folder; but the node may be another process by now, on a copy that lacks it.
            self._is_held_back = True
            self._settled.set()

    def _wait_for_room(self, commit: _Commit[Batch], error: DiskFull) -> None:
        if not self.lacks_room:
            log.error(f"the {self._name} wait for room on the disk", extra={"error": str(error)})
        self.lacks_room = True
        self._settled.set()
        self._loop.call_later(DISK_LOOK_MS / 1_000, self._write, commit)

    def _finish(self, commit: _Commit[Batch]) -> None:
        batch = commit.batch
        if batch is not None and not self._take_effect(batch, commit.started_s):
            return
        self._under_way = None
        self._settled.set()
        if self._held:
            self._release()
        # The next write begins before anybody is answered: the disk works while the loop talks.
        if self._is_due or self._is_wanted or self._store.batch_bytes:
            self._commit(is_behind_another=True)
        for caller, ready in commit.answers.items():
            caller.answer(ready)
        if commit.callbacks:
            self._call_back(commit.callbacks)
        if batch is not None:
            self._answered(batch)

    def _take_effect(self, batch: Batch, started_s: float) -> bool:
        try:
            self._store.committed(batch)
        except Exception as error:  # what is in memory may not be what is on the disk
            self.fail(error)
            return False
        self.count += 1
        self.took_s = self._loop.time() - started_s
        self.commit_seconds(self.took_s)
        self._earliest_s = started_s + self._pause_ms(batch) / 1_000
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
        return True

    def _call_back(self, callbacks: Iterable[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # Whoever gave it may be gone: the others of the batch are to hear of it all the same.
                log.exception("nobody could be told that a change is stored")

    def _release(self) -> None:
        for caller in self._held:
            caller.release_reading(self._hold)
        self._held.clear()

    # --- when it does not go on -------------------------------------------------------------------

    def go_on(self) -> None:
        """The identity is ours again: what was held back is answered, and the next commit begins."""
        if self._over.done():
            return
        commit = self._under_way
        if commit is not None and self._is_held_back:
            self._is_held_back = False
            self._finish(commit)
        self._release()
        self.changed()

    def fail(self, error: BaseException) -> None:
        """Nothing may be promised any more, whatever it was. The first error is the one that is told."""
        if not self.failed.done():
            if not isinstance(error, MoorlineError):
                error = StartError(f"the disk of the {self._name} failed: {error}")
            self.failed.set_result(error)
            self._end(error)
        self._settled.set()

    def _end(self, why: MoorlineError) -> None:
        if not self._over.done():
            self._over.set_result(why)

    @property
    def is_over(self) -> bool:
        """Whether no commit will come any more: the disk failed, or the node stops."""
        return self._over.done()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way: neither being written, nor written and held back."""
        return self._under_way is None

    async def drained(self) -> None:
        """Returns when all is committed that changed so far, or when no more can be."""
        while not self._over.done():
            self._earliest_s = 0.0
            self._commit()
            if self._under_way is None or self._is_held_back or self.lacks_room:
                return
            await self._settled.wait()

    async def close(self) -> None:
        """Commits what is left, if it may still be answered, and ends; whoever waits for more is told."""
        await self.drained()
        self._end(OutcomeUnknown("the node stops"))
        await asyncio.to_thread(self._thread.shutdown)
