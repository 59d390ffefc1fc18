"""Room: queues. Why a queue takes no messages, or gives none: said once, for whoever asks.

Whether a queue is full is decided by the queue itself, `Queue.admit` in core/queue/queue.py; whether the disk
is, by journal/disk_watch.py; who may not, by queues/owners.py.
"""

from collections.abc import Callable, Iterable
from typing import Any

from moorline.access.guard import Declared, Refusal
from moorline.core.queue.queue import Queue
from moorline.errors import (
    CallFailed,
    Denied,
    Elsewhere,
    HomeAway,
    NotFound,
    QueueBlocked,
    QueueDamaged,
    QueueOff,
    QuotaExceeded,
    RightsUnknown,
)
from moorline.journal.queues.store import Store
from moorline.net.session import Handler, Session
from moorline.net.session_rights import SessionRights
from moorline.queues.homes import NOT_HERE
from moorline.queues.owners import QueueOwners, nobody_hears, path_of
from moorline.wire.message import Answer, Call, Failed
from moorline.wire.queue import Acknowledge, Send

Absence = Callable[[SessionRights, bytes], NotFound | HomeAway]
"""For whom, and of which queue."""
MayBeNew = Callable[[bytes], bool]
"""Whether a queue may be of a home that is not known yet."""
Waits = Callable[[Handler, Session, Any], bool]
"""Whether a call is handled, and answered, later: its queue may be of a home that is not known yet."""


def why_shut(queue: Queue | None) -> CallFailed | None:
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


def check_readable(queue: Queue) -> None:
    unreadable = why_unreadable(queue)
    if unreadable is not None:
        raise unreadable


def never_new(_queue_id: bytes) -> bool:
    """Where there are no other homes."""
    return False


def at_once(_handler: Handler, _session: Session, _call: Call) -> bool:
    """The same: no call waits for one."""
    return False


def nowhere(_rights: SessionRights, _queue_id: bytes) -> NotFound:
    """Where no catalog knows of other nodes."""
    return NotFound(NOT_HERE)


class Refusals:
    """What is answered to sends and acknowledgements that change nothing."""

    def __init__(self, store: Store, owners: QueueOwners, message_bytes_max: int) -> None:
        self.absence: Absence = nowhere
        """What is said of a queue that is not here; it may be another node's."""
        self.may_be_new: MayBeNew = never_new
        self.waits: Waits = at_once
        """Both of `NewHomes`, in queues/new_homes.py."""
        self.tell: Callable[[Session, str, str, str], None] = nobody_hears
        """Told of a refusal that no guard made, as the audit is: the session, the act, its path, the code."""
        self._store = store
        self._owners = owners
        self._message_bytes_max = message_bytes_max

    def of_send(
        self, session: Session, queue: Queue | None, call: Send, *, is_disk_full: bool
    ) -> Failed | None:
        """Whatever its quota, which is `full`. None if it may be sent."""
        if queue is None:
            return Failed.of(call.call, self.absence(session.rights, call.queue))
        if queue.closed:
            # Before anything else: what state it is in is nothing for those whom it is closed to.
            try:
                self._owners.demand_send(session.rights, (call.queue,))
            except (Denied, RightsUnknown) as error:
                self.tell(session, Send.__name__, error.path, error.code)
                return Failed(call.call, error.code, str(error))
        shut = why_shut(queue)
        if shut is not None:
            return Failed(call.call, shut.code, str(shut))
        if len(call.body) > self._message_bytes_max:
            text = f"{len(call.body)} bytes; at most {self._message_bytes_max} are taken"
            return Failed(call.call, "TOO_LARGE", text)
        if not is_disk_full:
            return None
        text = "the node's disk is nearly full; it takes acknowledgements, but no messages"
        return Failed(call.call, "NODE_DISK_FULL", text)

    def elsewhere(self, rights: SessionRights, queue_id: bytes) -> Elsewhere | HomeAway | None:
        """The redirect of a call about a queue that is not here, or that its home is away; None if it is
        here, or if nobody knows where it is.

        Whose queue it is only its home knows. So this is told before any right to the queue is asked for,
        and depends on nothing but the end of its id.
        """
        if self._store.glance(queue_id) is not None:
            return None
        told = self.absence(rights, queue_id)
        return told if isinstance(told, Elsewhere | HomeAway) else None

    def redirecting(self, declared: Declared, *, asks_catalog: bool = False) -> Declared:
        """The same, and redirects stand before it: before the guard, and before the handler.

        A handler that asks the catalog knows more than ids say: who is granted the call goes to it.
        """
        handler, check = declared.handler, declared.check
        assert check is not None, "what needs no right has no guard to stand before"

        def handle(session: Session, calls: list[Any]) -> Iterable[Answer]:
            told, here = list[Answer](), []
            for call in calls:
                elsewhere = self.elsewhere(session.rights, call.queue)
                if asks_catalog and check(session.rights, call) is None:
                    here.append(call)
                elif elsewhere is not None:
                    told.append(Failed.of(call.call, elsewhere))
                elif not self.waits(handle, session, call):
                    here.append(call)
            return [*told, *(handler(session, here) if here else ())]

        def check_here(rights: SessionRights, call: Any) -> Refusal | None:
            refusal = check(rights, call)
            if refusal is None or self.elsewhere(rights, call.queue) is not None:
                return None
            # Of a queue whose home may be new, nobody knows yet who judges.
            return None if self.may_be_new(call.queue) else refusal

        return declared._replace(handler=handle, check=check_here)

    def full(self, call: Send) -> Failed:
        text = "the queue is full; its recipient must read it to the end"
        return Failed(call.call, QuotaExceeded.code, text)

    def of_reader(self, session: Session, queue: Queue | None, call: Acknowledge) -> Failed | None:
        """None if it may read it."""
        elsewhere = self.elsewhere(session.rights, call.queue) if queue is None else None
        if elsewhere is not None:
            return Failed.of(call.call, elsewhere)
        denied = self._owners.why_not_read(session.rights, call.queue, queue)
        if denied is not None:
            self.tell(session, Acknowledge.__name__, path_of(call.queue), denied.code)
            return Failed(call.call, denied.code, str(denied))
        if queue is None:
            return Failed.of(call.call, self.absence(session.rights, call.queue))
        unreadable = why_unreadable(queue)
        return Failed(call.call, unreadable.code, str(unreadable)) if unreadable else None

    def not_the_head(self, queue: Queue, call: Acknowledge) -> Failed:
        unreadable = why_unreadable(queue)
        if unreadable is not None:
            return Failed(call.call, unreadable.code, str(unreadable))
        head = self._store.head(queue)
        text = f"the head is {head.lsn}" if head else "the queue is empty"
        return Failed(call.call, "NO_MESSAGE", f"{call.message} is not the head: {text}")
