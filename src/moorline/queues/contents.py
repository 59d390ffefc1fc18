"""Room: queues. What waits in a queue, for those who read all queues: nothing is taken or changed."""

from moorline.core.queue.queue import QUOTA_MARKER
from moorline.errors import JournalDamaged, NotAuthorized, NotFound, QueueDamaged
from moorline.journal.queues.offline import waiting
from moorline.limits import PEEK_BYTES, PEEK_ROW_BYTES
from moorline.net.session import Handlers, Session, each
from moorline.queues.commands import QueueBroker
from moorline.wire.queue_contents import PeekQueue, QueuePeeked, WaitingMessage


class QueueContents:
    """Answers from the store of a broker."""

    def __init__(self, broker: QueueBroker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        return self._broker.parking.guard({PeekQueue: each(self._peek)})

    def _peek(self, session: Session, call: PeekQueue) -> QueuePeeked:
        broker, store = self._broker, self._broker.store
        queue = store.find(call.queue)
        if queue is None:
            raise NotFound(broker.absence(call.queue))
        if not broker.is_owner(session, call.queue) and not broker.is_operator(session):
            raise NotAuthorized("only the owner of a queue and an operator may read it")
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
