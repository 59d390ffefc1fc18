"""Room: services. Services: one identity that receives the messages of very many queues, and cannot drift.

The catalog is the only truth about associations. This file checks who may change them, and lets an answerer
answer the questions of a reconciliation; delivery.py sends the messages. Design: docs/design/services.md.
"""

import logging
import secrets
from collections.abc import Iterable

from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.service_check import CheckedServices
from moorline.catalog.services import OpenedService
from moorline.core.sets.answerer import Answerer
from moorline.core.sets.asker import Answered
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.prefix import Prefix
from moorline.errors import CallFailed, ConnectionLost, Malformed, NotAuthorized, ServiceDisabled
from moorline.ids import drawn
from moorline.limits import SERVICE_PAGE_QUEUES
from moorline.net.session import Handler, Handlers, Session
from moorline.net.turns import Turns
from moorline.queues.commands import QueueBroker
from moorline.services.delivery import ServiceDelivery, ServiceSession
from moorline.services.service_set import ServiceSet
from moorline.services.sketches import Sketches
from moorline.wire.message import Answer
from moorline.wire.queue import BlockQueue, DeleteQueue, Subscribe, Subscribed, Unsubscribe
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    AskLists,
    AskRanges,
    Associate,
    Associated,
    CloseService,
    Dissociate,
    Dissociated,
    ListsTold,
    OpenService,
    PayloadBlock,
    RangesTold,
    ServiceClosed,
    ServiceOpened,
    ServiceSubscribed,
    SubscribeService,
)
from moorline.wire.service_operator import VerifyService

log = logging.getLogger("moorline.queues")


class Counts:
    """What the verifies found, for /metrics."""

    def __init__(self) -> None:
        self.verifies = 0
        self.drifts = {"more": 0, "fewer": 0, "other": 0}
        self.payload_bytes = 0
        self.rounds = 0
        self.put_right = 0


class ServiceBroker:
    """Answers the commands of services for one node."""

    def __init__(
        self, services: CheckedServices, queues: QueueBroker, node_id: bytes = b""
    ) -> None:
        self.counts = Counts()
        self.any_associations = True
        """False only when it is certain: then plain commands need not ask the catalog."""
        self.services = services
        self.sketches = Sketches(services)
        self.delivery = ServiceDelivery(services, queues)
        self._queues = queues
        self._node_id = node_id
        self._store = queues.store
        self._by_session: dict[Session, ServiceSession] = {}
        self._watched: set[Session] = set()
        self.turns = Turns()

    async def start(self) -> None:
        self.any_associations = await self.services.any()

    def close(self) -> None:
        """Ends what is under way; the catalog and the store are about to close."""
        self.turns.close()
        self.delivery.close()

    def handlers(self) -> Handlers:
        plain = self._queues.handlers()
        return {
            OpenService: self.turns.later(self._open),
            CloseService: self.turns.later(self._close_service),
            Associate: self.turns.together(self._associate),
            Dissociate: self.turns.later(self._dissociate),
            SubscribeService: self.turns.later(self._subscribe),
            AskRanges: self.turns.later(self._ranges),
            AskLists: self.turns.later(self._lists),
            Subscribe: self._taking(plain[Subscribe]),
            Unsubscribe: self._in_order(plain[Unsubscribe]),
            DeleteQueue: self._freeing(plain[DeleteQueue]),
            BlockQueue: self._freeing(plain[BlockQueue]),
        }

    # --- commands of a service --------------------------------------------------------------------

    async def _open(self, session: Session, call: OpenService) -> Answer:
        if session.identity.is_anonymous:
            raise NotAuthorized("a service proves itself by a TLS client certificate")
        with unsure("the service was opened for the first time", HARMLESS):
            service = await self.services.open(
                session.identity.fingerprint,
                session.identity.name,
                drawn(secrets.token_bytes),
                secrets.token_bytes(16),
            )
        if service.is_disabled:
            raise ServiceDisabled(
                f"the service {service.name} is disabled; the operator can enable it"
            )
        acting = self._by_session.get(session)
        if acting is None:
            self._watch(session)
        elif acting.service.number != service.number:
            # It was deleted and is made anew: nothing of the old one is left.
            self.delivery.retire(acting)
            acting = None
        if acting is None:
            acting = self._by_session[session] = ServiceSession(service, session)
        acting.is_checked = False
        return await self._opened(call.call, service)

    async def _opened(self, call: int, service: OpenedService) -> Answer:
        digest = await self.services.digest(service.number)
        return ServiceOpened(
            call, service.id, service.salt, digest.count, digest.hash, self._node_id
        )

    async def _close_service(self, session: Session, call: CloseService) -> Answer:
        """The session is a plain one again; what it has of the service's comes again to the next."""
        acting = self._by_session.pop(session, None)
        if acting is not None:
            self.delivery.retire(acting)
        return ServiceClosed(call.call)

    async def _associate(self, session: Session, calls: list[Associate]) -> list[Answer]:
        """A run of them is one statement: the answers tell the digest after all."""
        acting = self._acting(session)
        async with self.turns.turn(self._owner_for(session)):
            admitted = [self._admitted(session, call.queues) for call in calls]
            good = [queue_id for queues, _ in admitted for queue_id in queues]
            digest, changed = await self._change_associations(acting, good)
        self.delivery.add(acting.service.number, good)
        answers: list[Answer] = []
        for call, (_, refused) in zip(calls, admitted, strict=True):
            counted = changed if not answers else 0
            answers.append(
                Associated(call.call, counted, digest.count, digest.hash, tuple(refused))
            )
        return answers

    async def _dissociate(self, session: Session, call: Dissociate) -> Answer:
        acting = self._acting(session)
        number = acting.service.number
        prefixes = _prefixes(call)
        changed = 0
        async with self.turns.turn(number):
            if any(prefix.bits == 0 for prefix in prefixes):
                with unsure("all queues were dissociated", HARMLESS):
                    async for page in self.services.pages(number, SERVICE_PAGE_QUEUES):
                        changed += await self._remove(page)
                    digest = await self.services.digest(number)
            else:
                named = await self.services.queues_in(number, prefixes)
                with unsure("the queues were dissociated", HARMLESS):
                    changed += await self._remove(named)
                    digest = await self.services.digest(number)
        return Dissociated(call.call, changed, digest.count, digest.hash)

    async def _subscribe(self, session: Session, call: SubscribeService) -> Answer:
        acting = self._acting(session)
        theirs = Digest(call.count, call.hash)
        await self._prove(acting)
        answered = await self._verified(acting, call)
        self._count(answered.digest, theirs)
        answer = soks_of(call.call, answered, acting.absent)
        if not session.is_open:
            return answer
        if acting.is_over:
            # Taken over before, and back.
            acting = self._by_session[session] = ServiceSession(acting.service, session)
            acting.is_checked = True
        self.delivery.take_over(acting, answered.digest)
        rest = answered.payload[PAYLOAD_PER_BLOCK:]
        if rest or acting.subscriber is None:
            # What is pushed must follow the answer, which leaves when this returns.
            self.turns.spawn(self._after_soks(acting, call.call, rest, call.window))
        return answer

    async def _ranges(self, session: Session, call: AskRanges) -> Answer:
        self.counts.rounds += 1
        answerer = Answerer(self._set_of(self._acting(session)))
        return RangesTold(call.call, await answerer.ranges(_prefixes(call)))

    async def _lists(self, session: Session, call: AskLists) -> Answer:
        self.counts.rounds += 1
        answerer = Answerer(self._set_of(self._acting(session)))
        return ListsTold(call.call, await answerer.lists(_prefixes(call)))

    # --- the answering side of a reconciliation ---------------------------------------------------

    async def _prove(self, acting: ServiceSession) -> None:
        """What a SOKS tells is what is there: once in every agreement the ids are hashed anew.

        It reads what the deliveries are about to read anyway. A kept digest that was wrong would say equal to
        a client whose messages never come.
        """
        if acting.is_checked:
            return
        number = acting.service.number
        checked = await self.services.checked(number, self._store.lacking)
        acting.absent = checked.absent
        if not checked.is_right:
            async with self.turns.turn(number):
                found = await self.services.put_right(number)
            self.counts.put_right += 1
            log.warning(
                "what was kept of a service was not what is there, and is put right",
                extra={
                    "service": acting.service.name,
                    "kept": found.kept.count,
                    "queues": found.true.count,
                    "wrong_buckets": len(found.wrong_buckets),
                    "wrong_hashes": found.wrong_hashes,
                },
            )
        acting.is_checked = True

    def _set_of(self, acting: ServiceSession) -> ServiceSet:
        """What a reconciliation with this session is about, also if the session leaves meanwhile."""
        return ServiceSet(self.services, self.sketches, acting.service)

    async def _verified(
        self, acting: ServiceSession, call: SubscribeService | VerifyService
    ) -> Answered:
        theirs = Digest(call.count, call.hash)
        answerer = Answerer(self._set_of(acting))
        answered = await answerer.verify(theirs, call.estimate, call.cells_min)
        self.counts.payload_bytes += len(answered.payload)
        return answered

    def _count(self, own: Digest, theirs: Digest) -> None:
        self.counts.verifies += 1
        self.counts.rounds += 1
        if own != theirs:
            kind = "other"
            if own.count != theirs.count:
                kind = "more" if own.count > theirs.count else "fewer"
            self.counts.drifts[kind] += 1

    async def _after_soks(
        self, acting: ServiceSession, call: int, rest: bytes, window: int
    ) -> None:
        await push_payload(acting.session, call, rest)
        await self.delivery.begin(acting, window)

    # --- associations -----------------------------------------------------------------------------

    def _owner_for(self, session: Session) -> bytes:
        """Whose queues this session may associate."""
        return session.identity.fingerprint

    def _admitted(
        self, session: Session, queues: list[bytes]
    ) -> tuple[list[bytes], list[tuple[bytes, str]]]:
        """Those that may be associated, and the others with the code why not."""
        owner = self._owner_for(session)
        good, refused = [], []
        for queue_id in queues:
            queue = self._store.glance(queue_id)
            if queue is None:
                refused.append((queue_id, "NOT_FOUND"))
            elif self._store.owners[queue.owner] != owner:
                refused.append((queue_id, "AUTH"))
            elif queue.blocked:
                refused.append((queue_id, "BLOCKED"))
            else:
                good.append(queue_id)
        return good, refused

    async def _change_associations(
        self, acting: ServiceSession, queues: list[bytes]
    ) -> tuple[Digest, int]:
        number = acting.service.number
        async with self.turns.turn(number):
            self.any_associations = True
            try:
                with unsure("the queues were associated", HARMLESS):
                    highs = await self.services.associate(number, queues, hash_ids(queues))
                    digest = await self.services.digest(number)
            finally:
                # Also if nobody knows: what is kept of whose they are may be wrong from here on.
                self.delivery.forget_routes(queues)
            self.sketches.changed(number, highs, digest)
        return digest, len(highs)

    async def _remove(self, queues: list[bytes]) -> int:
        """Takes associations away, and the deliveries with them."""
        if not self.any_associations:
            return 0
        with unsure("the queue was taken from its service", HARMLESS):
            gone = await self.services.dissociate(queues)
            for number, highs in gone.items():
                self.sketches.changed(number, highs, await self.services.digest(number))
        self.delivery.remove(queues)
        return sum(len(highs) for highs in gone.values())

    # --- commands of queues that touch associations -----------------------------------------------

    def _taking(self, plain: Handler) -> Handler:
        """SUB: in a service session it associates; from a plain client it takes the queue back."""

        async def subscribe(session: Session, call: Subscribe) -> Answer | None:
            acting = self._by_session.get(session)
            if acting is None:
                if self._queues.is_owner(session, call.queue):
                    await self._remove([call.queue])
                return _only(plain(session, [call]))
            async with self.turns.turn(self._owner_for(session)):
                good, refused = self._admitted(session, [call.queue])
                if refused:
                    raise CallFailed.of(refused[0][1], "the queue cannot be associated")
                await self._change_associations(acting, good)
            self.delivery.add(acting.service.number, good)
            queue = self._store.glance(call.queue)
            return Subscribed(call.call, queue.size if queue else 0)

        return self.turns.later(subscribe)

    def _in_order(self, plain: Handler) -> Handler:
        """A plain command that must not overtake those that wait for the catalog."""

        async def follow(session: Session, call: Unsubscribe) -> Answer | None:
            answer = _only(plain(session, [call]))
            if session in self._by_session:
                # It is the service's still: what its reader left goes where the others go.
                self.delivery.wake(call.queue)
            return answer

        return self.turns.later(follow)

    def _freeing(self, plain: Handler) -> Handler:
        """DEL and BLOCK take the association away before they change the queue."""

        async def change(session: Session, call: BlockQueue | DeleteQueue) -> Answer | None:
            # Only the service of its owner can associate it, and not between the two.
            async with self.turns.turn(self._queues.owner_of(call.queue)):
                if self._queues.may_free(session, call):
                    await self._remove([call.queue])
                return _only(plain(session, [call]))

        return self.turns.later(change)

    # --- inside -----------------------------------------------------------------------------------

    def _acting(self, session: Session) -> ServiceSession:
        acting = self._by_session.get(session)
        if acting is None:
            raise NotAuthorized("this session acts for no service: open it first")
        return acting

    def _watch(self, session: Session) -> None:
        """Its end is noticed; once, however often it opens and closes services."""
        if not session.is_open:
            raise ConnectionLost("the client went while its call was at work")
        if session not in self._watched:
            self._watched.add(session)
            session.at_end(lambda: self._left(session))

    def _left(self, session: Session) -> None:
        self._watched.discard(session)
        acting = self._by_session.pop(session, None)
        if acting is not None:
            self.delivery.retire(acting)


def soks_of(call: int, answered: Answered, absent: int = 0) -> ServiceSubscribed:
    """The answer to SUBS, with as much of its payload as fits a block."""
    digest, payload = answered.digest, answered.payload
    return ServiceSubscribed(
        call,
        digest.count,
        digest.hash,
        answered.mode.value,
        answered.cells,
        len(payload),
        payload[:PAYLOAD_PER_BLOCK],
        absent,
    )


async def push_payload(session: Session, call: int, rest: bytes) -> None:
    """What did not fit the answer, a block at a time, no faster than it is read."""
    for start in range(0, len(rest), PAYLOAD_PER_BLOCK):
        await session.room_to_write()
        piece = rest[start : start + PAYLOAD_PER_BLOCK]
        session.push(PayloadBlock(piece, call), len(piece))


def _prefixes(call: AskRanges | AskLists | Dissociate) -> list[Prefix]:
    for bits, value in call.prefixes:
        if value >> bits:
            raise Malformed(f"{value} is no prefix of {bits} bits")
    return [Prefix(bits, value) for bits, value in call.prefixes]


def _only(answers: Iterable[Answer]) -> Answer | None:
    """The answer that a plain handler had at once; one that comes after a commit finds its own way."""
    return next(iter(answers), None)
