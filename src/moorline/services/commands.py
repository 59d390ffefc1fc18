"""Room: services. Services: one identity that receives the messages of very many queues, and cannot drift.

The catalog is the only truth about associations. This file checks who may change them, and lets an answerer
answer the questions of a reconciliation; delivery.py sends the messages. Design: docs/design/services.md.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from moorline.access.guard import Declarations, Declared, demand, needs, own
from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.service_check import CheckedServices
from moorline.catalog.services import OpenedService
from moorline.core.access.principal import ANONYMOUS
from moorline.core.access.right import ADMINISTER, PUBLISH
from moorline.core.queue.queue import Queue
from moorline.core.sets.answerer import Answerer
from moorline.core.sets.asker import Answered
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.prefix import Prefix
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    Denied,
    Malformed,
    NotAuthorized,
    NotFound,
    RightsUnknown,
    ServiceDisabled,
)
from moorline.ids import drawn
from moorline.limits import SERVICE_PAGE_QUEUES
from moorline.net.session import Handler, Session
from moorline.net.turns import Turns
from moorline.queues.commands import QueueBroker
from moorline.queues.judging import Judging
from moorline.queues.owners import path_of as path_of_queue
from moorline.services.delivery import ServiceDelivery, ServiceSession
from moorline.services.rights import SERVICES, all_services
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
    ServiceEnded,
    ServiceOpened,
    ServiceSubscribed,
    SubscribeService,
)
from moorline.wire.service_operator import VerifyService

log = logging.getLogger("moorline.queues")

NO_DIGEST = (0, bytes(16))
"""Of a service whose end has nothing to do with its queues."""


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
        self._judging = Judging(self._judge_all, self.turns.spawn)

    async def start(self) -> None:
        self.any_associations = await self.services.any()

    def close(self) -> None:
        """Ends what is under way; the catalog and the store are about to close."""
        self.turns.close()
        self.delivery.close()

    def declared(self) -> Declarations:
        plain = self._queues.declared()
        return {
            OpenService: needs(PUBLISH, all_services, self.turns.later(self._open)),
            CloseService: own(self.turns.later(self._close_service)),
            Associate: own(self.turns.together(self._associate)),
            Dissociate: own(self.turns.later(self._dissociate)),
            SubscribeService: own(self.turns.later(self._subscribe)),
            AskRanges: own(self.turns.later(self._ranges)),
            AskLists: own(self.turns.later(self._lists)),
            # They need what they need without services.
            Subscribe: _around(plain[Subscribe], self._taking),
            Unsubscribe: _around(plain[Unsubscribe], self._in_order),
            DeleteQueue: _around(plain[DeleteQueue], self._freeing),
            BlockQueue: _around(plain[BlockQueue], self._freeing),
        }

    def judge_soon(self) -> None:
        """Rights have changed: who may not act for its service any more is told, and a plain client then."""
        self._judging.soon()

    def _judge_all(self) -> Generator[None, None, None]:
        for session, acting in list(self._by_session.items()):
            try:
                if self._by_session.get(session) is acting:
                    self._demand_to_act(session, acting)
            except (Denied, RightsUnknown) as error:
                self._queues.refused(session, OpenService.__name__, SERVICES, error.code)
                self._leave(session)
                session.send(ServiceEnded(*NO_DIGEST, error.code))
            yield

    def _demand_to_act(self, session: Session, acting: ServiceSession) -> None:  # noqa: ARG002
        demand(session.rights, PUBLISH, SERVICES)

    # --- commands of a service --------------------------------------------------------------------

    async def _open(self, session: Session, call: OpenService) -> Answer:
        principal = session.rights.principal
        if principal == ANONYMOUS:
            raise Denied("a service proves who it is, by a TLS client certificate for example")
        with unsure("the service was opened for the first time", HARMLESS):
            service = await self.services.open(
                principal,
                session.identity.fingerprint,
                drawn(secrets.token_bytes),
                secrets.token_bytes(16),
            )
        if service.is_disabled:
            raise ServiceDisabled(
                f"the service {service.name} is disabled; the operator can enable it"
            )
        # They may have changed while the catalog was asked.
        demand(session.rights, PUBLISH, SERVICES)
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
        self._leave(session)
        return ServiceClosed(call.call)

    async def _associate(self, session: Session, calls: list[Associate]) -> list[Answer]:
        """A run of them is one statement: the answers tell the digest after all."""
        acting = self._acting(session)
        named = (queue_id for call in calls for queue_id in call.queues)
        async with self._turns_of_owners(session, named):
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
        if self._acting(session) is not acting:
            raise NotAuthorized("this session acts for another service by now")
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

    def _is_its_own(self, session: Session, queue: Queue) -> bool:
        """Whether this session may associate it."""
        return self._queues.owners.is_owner(session.rights, queue)

    @asynccontextmanager
    async def _turns_of_owners(
        self, session: Session, queues: Iterable[bytes]
    ) -> AsyncIterator[None]:
        """Nobody takes one of them away meanwhile. A principal may own some under an old name yet."""
        found = [self._store.glance(queue_id) for queue_id in queues]
        numbers = {one.owner for one in found if one is not None and self._is_its_own(session, one)}
        async with AsyncExitStack() as stack:
            # In order: two that want the same ones must not wait for each other.
            for number in sorted(numbers):
                await stack.enter_async_context(self.turns.turn(_owners_turn(number)))
            yield

    def _admitted(
        self, session: Session, queues: list[bytes]
    ) -> tuple[list[bytes], list[tuple[bytes, str]]]:
        """Those that may be associated, and the others with the code why not."""
        good, refused = [], []
        for queue_id in queues:
            queue = self._store.glance(queue_id)
            if queue is None or not self._is_its_own(session, queue):
                # The same for both: a service hears nothing of what is another's.
                refused.append((queue_id, NotFound.code))
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
                await self._take_back(session, call.queue)
                return _only(plain(session, [call]))
            async with self._turns_of_owners(session, [call.queue]):
                good, refused = self._admitted(session, [call.queue])
                if refused:
                    raise CallFailed.of(refused[0][1], "the queue cannot be associated")
                await self._change_associations(acting, good)
            self.delivery.add(acting.service.number, good)
            queue = self._store.glance(call.queue)
            return Subscribed(call.call, queue.size if queue else 0)

        return self.turns.later(subscribe)

    async def _take_back(self, session: Session, queue_id: bytes) -> None:
        """From its service, before a plain client reads it: that is more than to read."""
        queue = self._store.glance(queue_id)
        if queue is None or not self.any_associations:
            return
        rights, path = session.rights, path_of_queue(queue_id)
        is_its_own = self._queues.owners.is_owner(rights, queue)
        if not is_its_own and not rights.at(path) & ADMINISTER:
            if await self.services.of_queues([queue_id]):
                demand(rights, ADMINISTER, path)
            return
        await self._remove([queue_id])

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
            number = self._queues.owners.number_of(call.queue)
            async with self.turns.turn(_owners_turn(number)):
                # Behind each wait: the right may have been taken away meanwhile.
                refusal = self._queues.refusal_now(session, call)
                if refusal is None and (isinstance(call, DeleteQueue) or call.blocked):
                    await self._remove([call.queue])
                    refusal = self._queues.refusal_now(session, call)
                return refusal or _only(plain(session, [call]))

        return self.turns.later(change)

    # --- inside -----------------------------------------------------------------------------------

    def _acting(self, session: Session) -> ServiceSession:
        acting = self._by_session.get(session)
        if acting is None:
            raise NotAuthorized("this session acts for no service: open it first")
        # The walk behind a change of rights may not have come to it yet.
        self._demand_to_act(session, acting)
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
        self._leave(session)

    def _leave(self, session: Session) -> None:
        """It acts for no service any more."""
        acting = self._by_session.pop(session, None)
        if acting is not None:
            self.delivery.retire(acting)


def _around(plain: Declared, wrap: Callable[[Handler], Handler]) -> Declared:
    return plain._replace(handler=wrap(plain.handler))


def _owners_turn(number: int | None) -> tuple[str, int | None]:
    """By the owner's number: its name may change while somebody waits, when a certificate comes again.
    A plain number is a service's turn."""
    return ("owner", number)


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
