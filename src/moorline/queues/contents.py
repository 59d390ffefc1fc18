"""Room: queues. What waits in a queue, for those who read all queues: nothing is taken or changed."""

from moorline.access.guard import Declarations, owner_or
from moorline.core.access.right import SUBSCRIBE
from moorline.core.queue.queue import QUOTA_MARKER
from moorline.errors import JournalDamaged, QueueDamaged
from moorline.journal.queues.offline import waiting
from moorline.limits import PEEK_BYTES, PEEK_ROW_BYTES
from moorline.net.session import Session, each
from moorline.queues.commands import QueueBroker
from moorline.queues.owners import QUEUES, path_of_call
from moorline.wire.queue_contents import PeekQueue, QueuePeeked, WaitingMessage


class QueueContents:
    """Answers from the store of a broker."""

    def __init__(self, broker: QueueBroker) -> None:
        self._broker = broker

    def declared(self) -> Declarations:
        broker = self._broker
        (handler,) = broker.parking.guard({PeekQueue: each(self._peek)}).values()
        peek = owner_or(SUBSCRIBE, path_of_call, broker.owners.of_call, handler, below=QUEUES)
        return {PeekQueue: peek}

    def _peek(self, _: Session, call: PeekQueue) -> QueuePeeked:
        broker, store = self._broker, self._broker.store
        queue = broker.found(call.queue)
        found: list[WaitingMessage] = []
        room = PEEK_BYTES
        try:
            for entry in waiting(store, queue):
                if entry.lsn <= call.after:
                    continue
                # What is not committed may still be lost, and then was never there.
                if entry.lsn > store.committed_lsn:
                    break
                if room <= 0:
                    return QueuePeeked(call.call, found, is_all=False)
                is_marker = entry.kind == QUOTA_MARKER
                found.append(WaitingMessage(entry.lsn, entry.time_ms, is_marker, entry.body))
                room -= len(entry.body) + PEEK_ROW_BYTES
        except JournalDamaged as error:
            raise QueueDamaged(str(error)) from error
        return QueuePeeked(call.call, found, is_all=True)
