"""Room: journal/queues. Queues on their way into their files: copied on one thread, written in another.

    loop      copy     the queues of a group, as they are
              …        the changes in the copies are committed
    thread    write    the copies into the files, one queue after another
    loop      land     what the files hold now counts; what has changed meanwhile comes on top

Senders, readers and deletions go on meanwhile: they change the queue, never its copy. Whoever needs the files
of a queue that is on its way claims it: one that is not begun leaves the group, and its turn comes again; for
the one that is just being written the claim waits; one that is written lands at once. So no two threads ever
touch the files of one queue, and nobody waits for more than one queue.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto

from moorline.core.queue.queue import Copied, Queue
from moorline.errors import DiskFull
from moorline.journal.queues.files import QueueFiles, Reader
from moorline.journal.queues.record import record_bytes
from moorline.limits import CACHE_BYTES_PER_QUEUE

Flush = Callable[[QueueFiles, Queue, int], None]


class Stage(Enum):
    COPIED = auto()
    WRITING = auto()
    WRITTEN = auto()
    FAILED = auto()


class _Passenger:
    """One queue of the group."""

    __slots__ = ("copied", "is_tried", "queue", "reader", "stage")

    def __init__(self, queue: Queue, copied: Copied, reader: Reader | None) -> None:
        self.queue = queue
        self.copied = copied
        self.reader = reader
        self.stage = Stage.COPIED
        self.is_tried = False
        """A full disk cut its flush short: its files may be ahead of it, as behind a crash."""


class Flight:
    """The group that is on its way, one at a time. `write` runs in a thread, all else on the store's."""

    def __init__(self, files: QueueFiles, writer: QueueFiles, flush: Flush) -> None:
        self._files = files
        self._writer = writer
        self._flush = flush
        self._group: dict[bytes, _Passenger] = {}
        self._landed: list[tuple[Queue, Queue]] = []
        self._claimed: list[Queue] = []
        self._turn = threading.Condition()
        self._is_stopped = False
        writer.spare = files.spare
        writer.removals = files.removals
        files.claim = self.claim

    def copy(self, queue: Queue) -> None:
        """Takes a queue into the group."""
        assert queue.id not in self._group, "a queue is on its way once"
        reader = self._files.hand_over(queue)
        self._group[queue.id] = _Passenger(queue, queue.copied(), reader)

    def write(self, now_ms: int) -> None:
        """Flushes the copies, those that are left of them; the first error of the disk ends it.

        Behind `DiskFull` it may be called again: the queue that found no room is as it was, but for what its
        folder holds, and that is brought in order as behind a crash.
        """
        for passenger in list(self._group.values()):
            if self._is_stopped:
                return
            with self._turn:
                is_here = self._group.get(passenger.queue.id) is passenger
                if not is_here or passenger.stage is not Stage.COPIED:
                    continue
                passenger.stage = Stage.WRITING
            copy, stage = passenger.copied.queue, Stage.FAILED
            try:
                self._writer.take_in(copy, passenger.reader)
                self._flush(self._writer, copy, now_ms)
                passenger.reader = self._writer.hand_over(copy)
                stage = Stage.WRITTEN
            except DiskFull:
                self._writer.let_go(copy)
                passenger.reader, passenger.is_tried, stage = None, True, Stage.COPIED
                raise
            finally:
                with self._turn:
                    passenger.stage = stage
                    self._turn.notify_all()

    def stop(self) -> None:
        """`write` ends behind the queue that it is at; nobody lands any more."""
        self._is_stopped = True

    def land(self) -> Iterator[None]:
        """The queues that were written land, but for those that are claimed meanwhile; pauses after each."""
        for passenger in list(self._group.values()):
            if self._group.get(passenger.queue.id) is passenger:
                self._arrive(passenger)
                yield

    def leave(self) -> tuple[list[tuple[Queue, Queue]], list[Queue]]:
        """Who has landed, each queue with its copy, and who was claimed before."""
        assert not self._group, "all have landed"
        landed, self._landed = self._landed, []
        claimed, self._claimed = self._claimed, []
        return landed, claimed

    def claim(self, queue: Queue) -> None:
        """Returns when nobody else touches the queue's files."""
        passenger = self._group.get(queue.id)
        if passenger is None or passenger.queue is not queue:
            return
        with self._turn:
            if passenger.stage is Stage.COPIED:
                del self._group[queue.id]
                if not passenger.is_tried:
                    queue.drop_copy(passenger.copied)
                self._claimed.append(queue)
                return
            while passenger.stage is Stage.WRITING:
                self._turn.wait()
        self._arrive(passenger)

    def _arrive(self, passenger: _Passenger) -> None:
        if passenger.stage is not Stage.WRITTEN:
            raise OSError("a queue could not be written to its files")
        queue, copy = passenger.queue, passenger.copied.queue
        del self._group[queue.id]
        was_at_hand = len(queue.cache or ()) == queue.stored
        moved = queue.take_over(passenger.copied)
        is_wanted = was_at_hand and queue.is_subscribed and not queue.damaged
        if is_wanted and sum(map(record_bytes, moved)) <= CACHE_BYTES_PER_QUEUE:
            # A subscriber will want what was just flushed: it need not be read back.
            queue.cache = deque([*(queue.cache or ()), *moved])
        if queue.damaged:
            if queue.is_dirty:
                # What came since then goes where the rest went.
                self._files.give_up(queue)
        else:
            self._files.take_in(queue, passenger.reader)
        self._landed.append((queue, copy))
