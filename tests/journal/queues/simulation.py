"""A seeded simulation of the store on a disk that crashes: shared by the tests.

The model is a dict of plain lists. A crash may come at any operation of the disk. Afterwards the store
must hold exactly what was committed, or that and the one batch that was on its way, whole.
"""

import copy
import random
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from tests.journal.queues.held_syncs import HeldSyncs

from moorline.core.queue.queue import QUOTA_MARKER, RECORD_HEAD_BYTES, Queue
from moorline.journal.queues import checkpoint
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.store import Store
from moorline.testing import Crashed, HandClock, MemoryDisk
from moorline.testing.memory_disk import Lose

QUOTA, FILE_MESSAGES = 3, 4


class ModelQueue(msgspec.Struct):
    """What a queue should hold: (id, kind, body) in order."""

    messages: list[tuple[int, int, bytes]] = []
    closed: bool = False
    blocked: bool = False


Model = dict[bytes, ModelQueue]


class Simulation:
    """One life of a store after another."""

    body_bytes: ClassVar[Sequence[int]] = (0, 1, 30, 700)

    def __init__(self, seed: int, *, sync: bool = True) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.clock = HandClock()
        self.disk = MemoryDisk()
        self.options = StoreOptions(
            sync=sync,
            queue_messages_max=QUOTA,
            file_messages_max=FILE_MESSAGES,
            levels=self.chance.choice([0, 2, 4]),
            open_files_max=4,
            open_queues_max=3,
        )
        self.lose: list[Lose] = ["all", "some"] if sync else ["none"]
        self.committed: Model = {}
        self.model: Model = {}
        self.crashes = 0
        self._commits = 0
        self._syncs = HeldSyncs()
        self.store = self._opened()

    def run(self, steps: int) -> None:
        for step in range(steps):
            if self.chance.random() < 0.05 and self.disk.crash_at is None:
                self.disk.crash_at = self.disk.steps + self.chance.randrange(40)
            try:
                self._step()
                self._check_queues()
            except Crashed:
                self._recover()
            except AssertionError as error:
                raise AssertionError(f"seed {self.seed}, step {step}: {error}") from error
        self.disk.crash_at = None
        self._check(self.store, [self._with_batch()])

    # --- one step ---------------------------------------------------------------------------------

    def _step(self) -> None:
        self.clock.advance(self.chance.randrange(2_000))
        roll = self.chance.random()
        if roll < 0.06 or not self.model:
            self._create()
        elif roll < 0.45:
            self._send()
        elif roll < 0.70:
            self._acknowledge()
        elif roll < 0.73:
            self._expire()
        elif roll < 0.75:
            self._block()
        elif roll < 0.77:
            self._delete()
        elif roll < 0.92:
            self._commit()
        else:
            self._checkpoint()

    def _create(self) -> None:
        queue = self.store.create(b"owner")
        self.model[queue.id] = ModelQueue()

    def _any(self) -> tuple[Queue, ModelQueue]:
        queue_id = self.chance.choice(sorted(self.model))
        queue = self.store.find(queue_id)
        assert queue is not None, "a queue is gone"
        return queue, self.model[queue_id]

    def _send(self) -> None:
        queue, model = self._any()
        body = self.chance.randbytes(self.chance.choice(self.body_bytes))
        if model.closed and not model.messages:
            model.closed = False
        lsn = self.store.send(queue, body, self.clock.wall_ms())
        if model.closed:
            assert lsn == 0, "a closed queue took a message"
        elif len(model.messages) >= QUOTA:
            assert lsn == 0, "the quota did not hold"
            model.closed = True
            model.messages.append((self.store.next_lsn - 1, QUOTA_MARKER, b""))
        else:
            assert lsn > 0, "a message was refused"
            model.messages.append((lsn, 0, body))

    def _acknowledge(self) -> None:
        queue, model = self._any()
        if self.chance.random() < 0.1:
            wrong = 10**9 + self.chance.randrange(9)
            assert not self.store.acknowledge(queue, wrong), "a wrong id was taken"
            return
        if model.messages:
            assert self.store.acknowledge(queue, model.messages[0][0]), "the head was refused"
            model.messages.pop(0)

    def _expire(self) -> None:
        queue, model = self._any()
        before = self.clock.wall_ms() - self.chance.choice([0, 30_000])
        gone = self.store.expire(queue, before)
        del model.messages[:gone]

    def _block(self) -> None:
        queue, model = self._any()
        model.blocked = not model.blocked
        self.store.block(queue, blocked=model.blocked)

    def _delete(self) -> None:
        queue, _ = self._any()
        self.store.delete(queue)
        del self.model[queue.id]

    def _commit(self) -> None:
        """Every other one as the loop does it: written there, and synced by somebody else."""
        self._commits += 1
        if self._commits % 2:
            self._begin()
            self._syncs.settle()
        self.store.commit()
        self.committed = copy.deepcopy(self.model)

    def _begin(self) -> None:
        """A batch is written, and its sync is on its way; or in one go, where that is for the thread."""
        store = self.store
        batch = store.take_batch()
        if batch is None:
            return
        store.begun_syncs = self._syncs

        def done(error: BaseException | None) -> None:
            assert error is None
            store.committed(batch)

        if not store.begin(batch, done):
            store.write(batch)
            store.committed(batch)

    def _checkpoint(self) -> None:
        """A part of a checkpoint, or all of it, with other work between its steps."""
        self._commit()
        work = checkpoint.steps(self.store, self.clock.wall_ms, self._ticking)
        for disk_work in work:
            if disk_work == self.store.begin_segment:
                # While the sync of what was written last is under way.
                self._begin()
                self.store.begin_segment()
                self._syncs.settle()
                self.committed = copy.deepcopy(self.model)
            elif disk_work is not None:
                disk_work()
            for _ in range(self.chance.choice([0, 0, 3])):
                self._between()
                self._check_queues()
            # Or not: a step that needs a commit waits for one.
            if self.chance.random() < 0.7:
                self._commit()
        self._commit()

    def _between(self) -> None:
        if not self.model or self.chance.random() < 0.1:
            self._create()
            return
        acts = [self._send, self._send, self._acknowledge, self._acknowledge, self._delete]
        self.chance.choice([*acts, self._expire, self._block])()

    def _ticking(self) -> int:
        """Time that passes with every look, so that every flush may end a slice."""
        self.clock.advance(self.chance.choice([0, 2]))
        return self.clock.now_ms()

    # --- crashes ----------------------------------------------------------------------------------

    def _opened(self) -> Store:
        store = Store(self.disk, self.options, self.clock.wall_ms, self.chance.randbytes)
        store.open()
        return store

    def _recover(self) -> None:
        maybe = [self._with_batch(), self.committed]
        self._syncs = HeldSyncs()
        while True:
            self.crashes += 1
            self.disk.crash(self.chance, self.chance.choice(self.lose))
            if self.chance.random() < 0.2:
                self.disk.crash_at = self.disk.steps + self.chance.randrange(20)
            try:
                self.store = self._opened()
                found = self._check(self.store, maybe)
                self.disk.crash_at = None
                break
            except Crashed:
                continue
        self.model, self.committed = copy.deepcopy(found), copy.deepcopy(found)

    def _check_queues(self) -> None:
        """What each queue in memory says of itself."""
        for queue in self.store.live.values():
            queue.check()

    def _with_batch(self) -> Model:
        return self.model

    def _check(self, store: Store, allowed: list[Model]) -> Model:
        """Which of the allowed models the store holds."""
        assert store.files.lost_messages == 0, "messages were reported lost"
        assert store.files.quarantined == 0, "a queue was set aside"
        assert store.files.doubled_messages == 0, "messages were said to come twice"
        problems = [mismatch(store, model) for model in allowed]
        for model, problem in zip(allowed, problems, strict=True):
            if not problem:
                return model
        raise AssertionError("; or ".join(problems))


def mismatch(store: Store, model: Model) -> str:
    """In what the store differs from the model; empty if in nothing."""
    if len(store) != len(model):
        return f"{len(store)} queues instead of {len(model)}"
    for queue_id, expected in model.items():
        queue = store.find(queue_id)
        if queue is None:
            return f"queue {queue_id.hex()[:8]} is missing"
        entries = [store.peek(queue, place) for place in range(queue.size)]
        found = [(e.lsn, e.kind, e.body) for e in entries if e is not None]
        if found != expected.messages:
            shown = [
                [(lsn, kind, len(body)) for lsn, kind, body in it]
                for it in (found, expected.messages)
            ]
            return f"queue {queue_id.hex()[:8]} holds {shown[0]} instead of {shown[1]}"
        if queue.blocked != expected.blocked:
            return f"queue {queue_id.hex()[:8]} is blocked: {queue.blocked}"
        if expected.messages and queue.can_write == expected.closed:
            return f"queue {queue_id.hex()[:8]} is closed: {not queue.can_write}"
        size = sum(RECORD_HEAD_BYTES + len(body) for _, _, body in expected.messages)
        if queue.bytes != size:
            return f"queue {queue_id.hex()[:8]} has {queue.bytes} bytes instead of {size}"
    owned = store.owners.owned_by(b"owner")
    sizes = sum(
        RECORD_HEAD_BYTES + len(body) for one in model.values() for _, _, body in one.messages
    )
    if (owned.queues, owned.bytes) != (len(model), sizes):
        return f"{owned.queues} queues and {owned.bytes} bytes instead of {len(model)} and {sizes}"
    return ""
