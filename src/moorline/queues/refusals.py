"""Room: queues. Why a queue takes no messages, or gives none: said once, for whoever asks."""

from moorline.core.queue.queue import Queue
from moorline.errors import CallFailed, NotFound, QueueBlocked, QueueDamaged, QueueOff


def why_closed(queue: Queue | None) -> CallFailed | None:
    """Why it takes no messages, whatever its quota; None if it does."""
    if queue is None:
        return NotFound("there is no queue of that id")
    if not queue.is_shut:
        return None
    return why_unreadable(queue) or QueueOff("the recipient takes no more messages in this queue")


def why_unreadable(queue: Queue) -> CallFailed | None:
    """Why even its owner gets nothing out of it; None if that is not so."""
    if queue.blocked:
        return QueueBlocked("the operator has blocked this queue")
    if queue.damaged:
        return QueueDamaged("the queue's files are damaged; the operator can repair them")
    return None
