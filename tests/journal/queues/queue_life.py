"""A store of queues from restart to restart, and what somebody does to its files while the node is down."""

import random

from moorline.core.queue.journal import QueueState, parse_line
from moorline.core.queue.queue import Entry, Queue
from moorline.journal.disk import Disk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.rebuild import rebuilt_index
from moorline.journal.queues.record import seed_of
from moorline.journal.queues.store import Store
from moorline.testing import HandClock, Lose, MemoryDisk

QUOTA, FILE_MESSAGES = 3, 4

SMALL = StoreOptions(queue_messages_max=QUOTA, file_messages_max=FILE_MESSAGES)


class QueueLife:
    """A store through its restarts; every change is committed before the next."""

    def __init__(self, disk: Disk | None = None, options: StoreOptions = SMALL) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.options = options
        self.clock = HandClock()
        self.chance = random.Random(7)
        self.store = self._opened()

    def _opened(self) -> Store:
        store = Store(self.disk, self.options, self.clock.wall_ms, self.chance.randbytes)
        store.open(rebuilt_index)
        return store

    def restart(self, lose: Lose = "none") -> None:
        """The process is killed and started; on a memory disk the machine may be the one."""
        if isinstance(self.disk, MemoryDisk):
            self.disk.crash(self.chance, lose)
        else:
            self.store.close()
        self.store = self._opened()

    def checkpoint(self) -> None:
        self.clock.advance(1)
        checkpoint.run(self.store, self.clock.wall_ms)

    def upto_sync(self) -> None:
        """A checkpoint that ends behind its first sync: the files know everything, the index nothing."""
        for work in checkpoint.steps(self.store, self.clock.wall_ms, lambda: 0):
            if work is not None:
                work()
            if work == self.disk.sync_all:
                return
        raise AssertionError("it did not sync")

    # --- a queue, by its id: objects do not outlive a restart -------------------------------------

    def create(self) -> bytes:
        queue_id = self.store.create(b"owner").id
        self.store.commit()
        return queue_id

    def queue(self, queue_id: bytes) -> Queue:
        queue = self.store.find(queue_id)
        assert queue is not None, "the queue is gone"
        return queue

    def send(self, queue_id: bytes, body: bytes, *, time_ms: int | None = None) -> int:
        now_ms = self.clock.wall_ms() if time_ms is None else time_ms
        message = self.store.send(self.queue(queue_id), body, now_ms)
        self.store.commit()
        return message

    def send_all(self, queue_id: bytes, *bodies: bytes) -> list[int]:
        messages = [self.send(queue_id, body) for body in bodies]
        assert all(messages), "a message was refused"
        return messages

    def acknowledge(self, queue_id: bytes, message: int) -> bool:
        done = self.store.acknowledge(self.queue(queue_id), message)
        self.store.commit()
        return done

    def acknowledge_head(self, queue_id: bytes) -> Entry:
        head = self.head(queue_id)
        assert head is not None, "the queue is empty"
        assert self.acknowledge(queue_id, head.lsn)
        return head

    def head(self, queue_id: bytes) -> Entry | None:
        return self.store.head(self.queue(queue_id))

    def entries(self, queue_id: bytes) -> list[Entry]:
        queue, found = self.queue(queue_id), list[Entry]()
        while (entry := self.store.peek(queue, len(found))) is not None:
            found.append(entry)
        assert len(found) == queue.size or queue.damaged
        return found

    def bodies(self, queue_id: bytes) -> list[bytes]:
        return [entry.body for entry in self.entries(queue_id)]

    # --- its files --------------------------------------------------------------------------------

    def folder(self, queue_id: bytes) -> str:
        return path_of(queue_id, self.options.levels)

    def names(self, queue_id: bytes) -> list[str]:
        folder = self.folder(queue_id)
        return self.disk.list_folder(folder) if self.disk.exists(folder) else []

    def message_files(self, queue_id: bytes) -> list[str]:
        return [name for name in self.names(queue_id) if name.startswith("messages.")]

    def backups(self, queue_id: bytes) -> list[str]:
        names = self.names(queue_id)
        return [name for name in names if name.startswith("queue.") and name != "queue.log"]

    def read(self, path: str) -> bytes:
        file = self.disk.open(path, create=False)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def lines(self, queue_id: bytes, name: str = "queue.log") -> list[str]:
        return self.read(f"{self.folder(queue_id)}/{name}").decode().splitlines()


class Damage(QueueLife):
    """QueueLife whose files somebody alters while the node is down."""

    def overwrite(self, path: str, data: bytes) -> None:
        file = self.disk.open(path, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        file.close()
        self.disk.sync_all()

    def state_path(self, queue: bytes) -> str:
        return f"{self.folder(queue)}/queue.log"

    def state(self, queue: bytes) -> QueueState:
        state = parse_line(self.lines(queue)[-1], seed_of(queue))
        assert state is not None
        return state

    def message_path(self, queue: bytes, name: str) -> str:
        return f"{self.folder(queue)}/messages.{name}.log"

    def stored(self, *bodies: bytes) -> bytes:
        """A queue with these messages in its files, one state line each, and nothing in the log."""
        queue = self.create()
        for body in bodies:
            self.send_all(queue, body)
            self.checkpoint()
        return queue

    def two_files(self) -> bytes:
        """A queue with 1 in its read file and 2 and 3 in its write file."""
        queue = self.stored(b"a", b"b", b"c")
        for body in (b"1", b"2", b"3"):
            self.acknowledge_head(queue)
            self.send_all(queue, body)
        self.checkpoint()
        assert self.state(queue).has_two_files
        assert len(self.message_files(queue)) == 2
        assert self.bodies(queue) == [b"1", b"2", b"3"]
        return queue

    def is_at_work(self, queue: bytes) -> None:
        """The queue takes messages, keeps their order, and survives another restart."""
        before = self.bodies(queue)
        self.send_all(queue, b"later")
        self.checkpoint()
        self.restart("all")
        assert self.bodies(queue) == [*before, b"later"]
        for body in [*before, b"later"]:
            assert self.acknowledge_head(queue).body == body
        self.checkpoint()
        # Removals are not synced: a power cut may bring the files back, but not the messages.
        assert self.message_files(queue) == []
        self.restart("all")
        assert self.bodies(queue) == []
