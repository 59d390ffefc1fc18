"""Room: queues. What waits in a queue, for those who read all queues: nothing is taken or changed.

A queue may hold a million messages, and each look begins at its front: it is walked over in slices. What
changes between two of them is found out, and the look begins again from there.
"""

from collections.abc import Generator

from moorline.access.guard import Declarations, owner_or
from moorline.core.access.right import SUBSCRIBE
from moorline.core.queue.queue import QUOTA_MARKER, Entry, Queue
from moorline.errors import JournalDamaged, QueueDamaged, QueueInRepair
from moorline.journal.queues.offline import waiting_in_files
from moorline.limits import (
    PEEK_BYTES,
    PEEK_BYTES_PER_STEP,
    PEEK_ROW_BYTES,
    PEEK_SEEN_BYTES_MAX,
    PEEK_TRIES,
)
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.queues.commands import QueueBroker
from moorline.queues.owners import QUEUES, path_of_call
from moorline.wire.queue_contents import PeekQueue, QueuePeeked, WaitingMessage


class _Moved(Exception):
    """What is in files is not what it was when the look began."""


class QueueContents:
    """Answers from the store of a broker."""

    def __init__(self, broker: QueueBroker) -> None:
        self._broker = broker

    def declared(self) -> Declarations:
        broker = self._broker
        (handler,) = broker.parking.guard({PeekQueue: broker.spawned(self._peek)}).values()
        owner_of = broker.owners.of_call
        return {
            PeekQueue: owner_or(
                SUBSCRIBE, path_of_call, owner_of, handler, below=QUEUES, is_look=True
            )
        }

    async def _peek(self, session: Session, call: PeekQueue) -> QueuePeeked:
        answer = await in_slices(self._looking(call), session.rights.principal)
        # Others had their turns meanwhile: the right is asked for once more.
        queue = self._broker.found(call.queue)
        denied = self._broker.owners.why_not_read(session.rights, call.queue, queue)
        if denied is not None:
            raise denied
        return answer

    def _looking(self, call: PeekQueue) -> Generator[None, None, QueuePeeked]:
        for _ in range(PEEK_TRIES):
            found = _Page(call)
            try:
                yield from self._look(call, found)
            except _Moved:
                # What was found is right as far as it goes; without any the caller could not go on from it.
                if not found.upto:
                    yield
                    continue
                found.is_all = False
            except JournalDamaged as error:
                raise QueueDamaged(str(error)) from error
            return QueuePeeked(call.call, found.messages, is_all=found.is_all, upto=found.upto)
        raise QueueInRepair("the files of the queue change too fast to look into it: ask again")

    def _look(self, call: PeekQueue, page: "_Page") -> Generator[None, None, None]:
        store = self._broker.store
        queue = self._broker.found(call.queue)
        begun = self._files_of(queue)
        try:
            passed = 0
            for entry in waiting_in_files(store, queue):
                if not page.takes(entry, store.committed_lsn):
                    return
                passed += len(entry.body) + PEEK_ROW_BYTES
                if passed >= PEEK_BYTES_PER_STEP:
                    passed = 0
                    yield
                    if (
                        self._broker.found(call.queue) is not queue
                        or self._files_of(queue) != begun
                    ):
                        raise _Moved
        except JournalDamaged:
            if self._files_of(queue) != begun:
                raise _Moved from None
            raise
        # Of one moment with the end of the files: nothing is between the two.
        for entry in queue.pending or ():
            if not page.takes(entry, store.committed_lsn):
                return

    def _files_of(self, queue: Queue) -> object:
        """What is other when messages have gone into files, or files have gone."""
        store = self._broker.store
        if queue.id in store.mending:
            raise QueueInRepair("the queue is being checked or repaired: ask again in a moment")
        if not (queue.stored or queue.consumed or queue.popped is not None):
            return None
        reader = store.files.reader(queue)
        state = None if reader is None else reader.journal.stored
        return state and (state.read_file, state.write_file, state.write_byte, state.read_bytes)


class _Page:
    """Messages of one answer."""

    def __init__(self, call: PeekQueue) -> None:
        self.messages: list[WaitingMessage] = []
        self.is_all = True
        self.upto = 0
        """The last message that was looked at, whether it is wanted or not."""
        self._call = call
        self._room = PEEK_BYTES
        self._seen_bytes = 0

    def takes(self, entry: Entry, committed: int) -> bool:
        """False where it ends."""
        if entry.lsn <= self._call.after:
            return True
        # What is not committed may still be lost, and then was never there.
        if entry.lsn > committed:
            return False
        if self._room <= 0 or self._seen_bytes >= PEEK_SEEN_BYTES_MAX:
            self.is_all = False
            return False
        self.upto = entry.lsn
        self._seen_bytes += len(entry.body) + PEEK_ROW_BYTES
        if entry.time_ms < self._call.from_ms or self._call.contains not in entry.body:
            return True
        is_marker = entry.kind == QUOTA_MARKER
        self.messages.append(WaitingMessage(entry.lsn, entry.time_ms, is_marker, entry.body))
        self._room -= len(entry.body) + PEEK_ROW_BYTES
        return True
