"""Room: queues. Who may do what with a queue: paths, what one needs who is not its owner, and whose it is."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from moorline.access.guard import demand, demand_unless_denied, is_owners
from moorline.core.access.owner import name_of, owner_of
from moorline.core.access.right import ADMINISTER, LIST, SUBSCRIBE, WRITE
from moorline.core.queue.queue import Queue
from moorline.errors import CallFailed, Denied, RightsUnknown
from moorline.ids import text_of
from moorline.journal.queues.store import Store
from moorline.net.session import Session, SessionRights
from moorline.wire.message import Call
from moorline.wire.queue import DeleteQueue, DescribeQueue, Get, Subscribe, Suspend, Unsubscribe

log = logging.getLogger("moorline.queues")

QUEUES: Final = "/queues"

OWNERS_CALLS: Mapping[type[Call], int] = {
    Subscribe: SUBSCRIBE,
    Unsubscribe: SUBSCRIBE,
    Get: SUBSCRIBE,
    Suspend: ADMINISTER,
    DeleteQueue: ADMINISTER,
    DescribeQueue: LIST,
}
"""What an owner may, and what another needs for it."""


class OfOneQueue(Protocol):
    """A call that names a queue."""

    @property
    def queue(self) -> bytes: ...


def path_of(queue_id: bytes) -> str:
    return f"{QUEUES}/{text_of(queue_id)}"


def path_of_call(call: OfOneQueue) -> str:
    return path_of(call.queue)


def paths_of_call(call: OfOneQueue) -> tuple[str]:
    return (path_of(call.queue),)


def all_queues(_: object) -> tuple[str]:
    return (QUEUES,)


class QueueOwners:
    """The owners of a store's queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def owner_of(self, queue_id: bytes) -> bytes:
        """As the store keeps it; nobody's is empty, and that of what is not here."""
        queue = self._store.glance(queue_id)
        return b"" if queue is None else self._store.owners[queue.owner]

    def name_of(self, queue: Queue | None) -> str:
        return "" if queue is None else name_of(self._store.owners[queue.owner])

    def of_call(self, call: OfOneQueue) -> str:
        return self.name_of(self._store.glance(call.queue))

    def is_owner(self, rights: SessionRights, queue: Queue | None) -> bool:
        return is_owners(rights, SUBSCRIBE, self.name_of(queue))

    def reader(self, rights: SessionRights) -> bytes | None:
        """The owner whose queues these rights read without a look at the rows; None if there is none."""
        return (rights.is_known and owner_of(rights.principal)) or None

    def why_not_read(
        self, rights: SessionRights, queue_id: bytes, queue: Queue | None
    ) -> CallFailed | None:
        """What is answered to one that may not; None if it may."""
        if rights.everywhere(QUEUES) & SUBSCRIBE:
            return None
        try:
            demand(rights, SUBSCRIBE, path_of(queue_id), self.name_of(queue))
        except (Denied, RightsUnknown) as error:
            return error
        return None

    def demand_send(self, rights: SessionRights, queue_ids: Iterable[bytes]) -> None:
        """What `Send` needs, for messages that come by another way."""
        if not rights.denied_within(WRITE, QUEUES):
            return
        for queue_id in queue_ids:
            owner = self.name_of(self._store.glance(queue_id))
            demand_unless_denied(rights, WRITE, path_of(queue_id), owner)

    def claim(self, fingerprint: bytes, principal: str) -> bool:
        """False if there was nothing of that fingerprint, or nobody to give it to."""
        owner = owner_of(principal)
        if not owner or not fingerprint or not self._store.rename_owner(fingerprint, owner):
            return False
        extra = {"fingerprint": fingerprint.hex(), "principal": principal}
        log.info("the queues of a certificate are its principal's", extra=extra)
        return True


def nobody_hears(_session: Session, _act: str, _path: str, _code: str) -> None:
    """Where there is no audit."""
