"""Room: queues. What quotas say of queues: how many an owner has, what waits in them, how often one may send.

A queue, and what waits in it, is its owner's. What is sent in a second is its sender's.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from moorline.core.access.owner import owner_of
from moorline.core.access.quota import UNBOUNDED, Quota
from moorline.core.queue.owned import Owned
from moorline.core.queue.queue import RECORD_HEAD_BYTES, Queue
from moorline.errors import OverQuota
from moorline.journal.queues.store import Store
from moorline.net.session import Session
from moorline.net.session_rights import SessionAllowance
from moorline.queues.owners import QueueOwners
from moorline.queues.refusals import Refusals
from moorline.wire.message import Answer, Call, Failed
from moorline.wire.queue import NewQueue, Send

Asked = TypeVar("Asked", NewQueue, Send)


class QueueQuotas:
    def __init__(self, store: Store, owners: QueueOwners, refusals: Refusals) -> None:
        self.stored_bytes_max: Callable[[bytes], int] = lambda _: UNBOUNDED
        """What may wait in all queues of an owner."""
        self._store = store
        self._owners = owners
        self._refusals = refusals
        self._old: dict[str, list[Owned]] = {}
        """What principals have of old certificates, beside what they made."""

    def may_make(
        self, session: Session, calls: list[NewQueue], refused: list[Answer]
    ) -> list[NewQueue]:
        """As many as there is room for; what is answered to the others goes to `refused`."""
        if session.allowance is None:
            return calls
        held, making = self.queues_of(session.rights.principal), 0

        def check(allowance: SessionAllowance, _: NewQueue) -> None:
            nonlocal making
            allowance.check_room(Quota.QUEUES, held + making)
            allowance.take_made(Quota.QUEUES)
            making += 1

        return self._given(session, calls, refused, check)

    def queues_of(self, principal: str) -> int:
        own = self._store.owners.owned_by(owner_of(principal)).queues
        return own + sum(one.queues for one in self._old.get(principal, ()))

    def made(self, queue: Queue) -> None:
        """Its owner may be new here."""
        queue.owned.bytes_max = self.stored_bytes_max(self._store.owners[queue.owner])

    def may_send(self, session: Session, calls: list[Send], refused: list[Answer]) -> list[Send]:
        """Those that their sender may send in this second: all of them at once, or as many as there are."""
        allowance = session.allowance
        assert allowance is not None
        count = len(calls)
        size = len(calls[0].body) if count == 1 else sum([len(call.body) for call in calls])
        if allowance.take_run(count, size, session.turn_began_ms, Quota.STORED_BYTES):
            return calls

        def check(allowance: SessionAllowance, call: Send) -> None:
            allowance.take_published(1, len(call.body), Quota.STORED_BYTES)

        return self._given(session, calls, refused, check)

    def bound_all(self) -> Generator[None, None, None]:
        """Quotas have changed, or whose old queues are: each owner's is asked for anew."""
        owners, old = self._store.owners, dict[str, list[Owned]]()
        for number, owner in enumerate(list(owners)):
            owned = owners.owned[number]
            _, principal = self._owners.old_principal(owner)
            owned.bytes_max = self.stored_bytes_max(owner_of(principal) if principal else owner)
            # Two numbers of one owner have the same.
            if principal and all(one is not owned for one in old.setdefault(principal, [])):
                old[principal].append(owned)
            yield
        self._old = old

    def stored_too_much(self, session: Session, call: Send) -> Failed:
        return self._told(session, call, stored_too_much())

    def _given(
        self,
        session: Session,
        calls: list[Asked],
        refused: list[Answer],
        check: Callable[[SessionAllowance, Asked], None],
    ) -> list[Asked]:
        allowance, given = session.allowance, list[Asked]()
        assert allowance is not None
        for call in calls:
            try:
                check(allowance, call)
            except OverQuota as error:
                refused.append(self._told(session, call, error))
            else:
                given.append(call)
        return given

    def _told(self, session: Session, call: Call, error: OverQuota) -> Failed:
        self._refusals.tell(session, type(call).__name__, error.path, error.code)
        return Failed.of(call.call, error)


def has_room(queue: Queue, body: bytes) -> bool:
    """Whether its owner may have that waiting too."""
    owned = queue.owned
    return owned.bytes + len(body) + RECORD_HEAD_BYTES <= owned.bytes_max


def stored_too_much() -> OverQuota:
    """A sender hears nothing of the owner but that."""
    error = OverQuota(
        "what waits in the queues of this one's owner is as much as its quota stored_bytes allows: "
        "it must read or delete some of it"
    )
    error.quota = Quota.STORED_BYTES.value
    return error
