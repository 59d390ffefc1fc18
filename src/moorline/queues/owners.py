"""Room: queues. Who may do what with a queue: paths, what one needs who is not its owner, and whose it is."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from moorline.access.guard import demand, demand_somewhere, demand_unless_denied, is_owners
from moorline.access.owner_page import OldOwner
from moorline.core.access.owner import (
    PRINCIPAL,
    claim_of,
    claimed,
    judged_name_of,
    name_of,
    owner_of,
)
from moorline.core.access.right import ADMINISTER, LIST, SUBSCRIBE, WRITE
from moorline.core.queue.queue import Queue
from moorline.errors import CallFailed, Denied, RightsUnknown
from moorline.ids import text_of
from moorline.journal.queues.store import Store
from moorline.limits import QUEUES_GONE_MAX
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.wire.message import Call
from moorline.wire.queue import (
    CloseQueue,
    DeleteQueue,
    DescribeQueue,
    Get,
    PurgeQueue,
    Subscribe,
    Suspend,
    Unsubscribe,
)

log = logging.getLogger("moorline.queues")

QUEUES: Final = "/queues"

OWNERS_CALLS: Mapping[type[Call], int] = {
    Subscribe: SUBSCRIBE,
    Unsubscribe: SUBSCRIBE,
    Get: SUBSCRIBE,
    Suspend: ADMINISTER,
    CloseQueue: ADMINISTER,
    DeleteQueue: ADMINISTER,
    PurgeQueue: ADMINISTER,
    DescribeQueue: LIST,
}
"""What an owner may, and what another needs for it."""


LOOKS: Final = frozenset({Subscribe, Get})
"""What shows another than its owner what is in a queue: the audit has it."""


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
        self._gone: OrderedDict[bytes, int] = OrderedDict()
        """Deleted queues, and the numbers of their owners: to others they are as if they had never been."""
        self.mapped: Callable[[str], str] = lambda _: ""
        """Whose an operator said the things of a fingerprint, in hex, are; empty if nobody did."""

    def number_of(self, queue_id: bytes) -> int | None:
        """Its owner's number, which a queue keeps as long as it is there, also if the owner is renamed."""
        queue = self._store.glance(queue_id)
        return None if queue is None else queue.owner

    def name_of(self, queue: Queue) -> str:
        """For people."""
        return self._mapped(queue) or name_of(self._store.owners[queue.owner])

    def judged_name_of(self, queue: Queue) -> str:
        """For verdicts."""
        return judged_name_of(self._store.owners[queue.owner])

    def is_of(self, queue: Queue, owner: str) -> bool:
        """Whether it belongs to that owner of a service: a principal, or an old name as it is judged."""
        stored = self._store.owners[queue.owner]
        claim = claim_of(stored)
        if claim is not None:
            return (self._mapped(queue) or claim.principal) == owner
        return judged_name_of(stored) == owner

    def _mapped(self, queue: Queue) -> str:
        """Whose an operator said it is, against who claimed it."""
        claim = claim_of(self._store.owners[queue.owner])
        return "" if claim is None else self.mapped(claim.fingerprint)

    def of_call(self, call: OfOneQueue) -> str:
        return self._judged_name(call.queue, self._store.glance(call.queue))

    def deleted(self, queue: Queue) -> None:
        """Its owner hears from now on that it is gone, and everybody else what they heard before."""
        self._gone[queue.id] = queue.owner
        if len(self._gone) > QUEUES_GONE_MAX:
            self._gone.popitem(last=False)

    def _judged_name(self, queue_id: bytes, queue: Queue | None) -> str:
        """Of what is not here too; it is nobody's if it has not been deleted lately."""
        number = self._gone.get(queue_id) if queue is None else queue.owner
        return "" if number is None else judged_name_of(self._store.owners[number])

    def is_owner(self, rights: SessionRights, queue: Queue) -> bool:
        return is_owners(rights, SUBSCRIBE, self.judged_name_of(queue))

    def reader(self, rights: SessionRights) -> bytes | None:
        """The owner whose queues these rights read without a look at the rows; None if there is none."""
        return (rights.is_known and owner_of(rights.principal)) or None

    def reads_all(self, rights: SessionRights) -> bool:
        """Whether a row grants it all queues, whosever they are."""
        return bool(rights.everywhere(QUEUES) & SUBSCRIBE)

    def why_not_read(
        self, rights: SessionRights, queue_id: bytes, queue: Queue | None
    ) -> CallFailed | None:
        """What is answered to one that may not; None if it may."""
        if queue is not None and self._store.owners[queue.owner] == self.reader(rights):
            # Without a verdict for each path: a walk over all subscriptions would make as many as there are.
            return None
        if queue is not None and self.is_owner(rights, queue):
            return None
        if self.reads_all(rights):
            return None
        try:
            demand(rights, SUBSCRIBE, path_of(queue_id), self._judged_name(queue_id, queue))
        except (Denied, RightsUnknown) as error:
            return error
        return None

    def demand_send_somewhere(self, rights: SessionRights) -> None:
        """What some `Send` needs, whichever queue it is to: whoever knows an id may, unless rows deny that at
        all queues; who has queues, or a row below, may then too."""
        if not rights.denied(WRITE, QUEUES) or self._has_queues(rights):
            return
        demand_somewhere(rights, WRITE, QUEUES)

    def _has_queues(self, rights: SessionRights) -> bool:
        owners = self._store.owners
        return any(
            owners.owned[number].queues and is_owners(rights, WRITE, judged_name_of(owner))
            for number, owner in enumerate(owners)
        )

    def demand_send(self, rights: SessionRights, queue_ids: Iterable[bytes]) -> None:
        """What `Send` needs, for messages that come by another way."""
        is_denied_some = rights.denied_within(WRITE, QUEUES)
        for queue_id in queue_ids:
            queue = self._store.glance(queue_id)
            if queue is not None and queue.closed:
                demand(rights, WRITE, path_of(queue_id), self.judged_name_of(queue))
            elif is_denied_some:
                owner = self._judged_name(queue_id, queue)
                demand_unless_denied(rights, WRITE, path_of(queue_id), owner)

    def old(self) -> dict[str, OldOwner]:
        """Certificates that have queues here, by their fingerprints in hex."""
        owners, found = self._store.owners, dict[str, OldOwner]()
        for number, owner in enumerate(owners):
            if not owner or owner.startswith(PRINCIPAL) or not owners.owned[number].queues:
                continue
            fingerprint, principal = self.old_principal(owner)
            found[fingerprint] = OldOwner(principal, owners.owned[number].queues)
        return found

    def old_principal(self, owner: bytes) -> tuple[str, str]:
        """Of an old certificate: its fingerprint in hex, and whose its queues are; both empty of others."""
        if not owner or owner.startswith(PRINCIPAL):
            return "", ""
        claim = claim_of(owner)
        fingerprint, claimant = (owner.hex(), "") if claim is None else claim
        return fingerprint, self.mapped(fingerprint) or claimant

    def claim(self, fingerprint: bytes, principal: str) -> bool:
        """False if there was nothing of that fingerprint, or nobody to give it to.

        What an operator mapped is not claimed, not even by whom it was mapped to; and what is claimed is an
        operator's to map: the fingerprint stays beside the principal.
        """
        if not owner_of(principal) or not fingerprint or self.mapped(fingerprint.hex()):
            return False
        if not self._store.rename_owner(fingerprint, claimed(fingerprint, principal)):
            return False
        extra = {"fingerprint": fingerprint.hex(), "principal": principal}
        log.info("the queues of a certificate are its principal's", extra=extra)
        return True


def nobody_hears(_session: Session, _act: str, _path: str, _code: str) -> None:
    """Where there is no audit."""
