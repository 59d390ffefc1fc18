"""Room: services. Services: one identity that receives the messages of very many queues, and cannot drift.

The queues of a service are in parts, one for each home; this node answers for the part of its own home, and
nobody else changes that. The catalog is the only truth about associations. associations.py changes them,
queue_commands.py has the commands of queues that touch them, and delivery.py sends the messages. This
file answers the service, and lets an answerer answer the questions of a reconciliation. Design:
docs/design/services.md.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, GuardedHandler, demand, heavy, needs, own
from moorline.access.judging import Judging
from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.service_check import CheckedServices
from moorline.catalog.services import OpenedService
from moorline.core.access.principal import ANONYMOUS
from moorline.core.access.right import PUBLISH
from moorline.core.queue.queue import Queue
from moorline.core.sets.answerer import Answerer
from moorline.core.sets.asker import Answered
from moorline.core.sets.digest import Digest
from moorline.core.sets.prefix import Prefix
from moorline.errors import (
    ConnectionLost,
    Denied,
    Malformed,
    NotAuthorized,
    NotFound,
    RightsUnknown,
    ServiceDisabled,
    ServiceTaken,
)
from moorline.ids import drawn
from moorline.limits import SERVICE_PAGE_QUEUES
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.queues.commands import QueueBroker
from moorline.queues.homes import QueueHomes
from moorline.services.associations import Associations
from moorline.services.delivery import ServiceDelivery, ServiceSession, Told
from moorline.services.epochs import Epochs
from moorline.services.queue_commands import QueueCommands
from moorline.services.rights import SERVICES, all_services
from moorline.services.service_set import ServiceSet
from moorline.services.sketches import Sketches
from moorline.wire.message import Answer
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


class ToldByQueues:
    """The audit hears of refusals of services where it hears of those of queues."""

    def __init__(self, queues: QueueBroker) -> None:
        self._queues = queues

    def refused(self, session: Session, /, act: str, path: str, code: str) -> None:
        self._queues.refusals.tell(session, act, path, code)


class ServiceBroker:
    """Answers the commands of services for one node."""

    def __init__(
        self,
        services: CheckedServices,
        queues: QueueBroker,
        node_id: bytes = b"",
        homes: QueueHomes | None = None,
    ) -> None:
        self.counts = Counts()
        self.compared: Callable[[bytes], None] = lambda _: None
        """Called with the id of a service that has told what it means, and was answered."""
        self.services = services
        self.home = queues.store.options.home
        self.sketches = Sketches(services, self.home)
        self.delivery = ServiceDelivery(services, queues)
        self._queues = queues
        self._node_id = node_id
        self._homes = homes
        self._epochs = Epochs(services, self.delivery)
        self._store = queues.store
        self._by_session: dict[Session, ServiceSession] = {}
        self._watched: set[Session] = set()
        self.turns = Turns()
        self._associations = Associations(
            services, self.sketches, self.delivery, queues, self.turns, self._is_its_own
        )
        self._demands = Demands(ToldByQueues(queues))
        self._queue_commands = QueueCommands(
            queues, self._associations, self.delivery, self._by_session.get, self._demands
        )
        self._judging = Judging(self._judge_all, self.turns.spawn)

    async def start(self) -> None:
        self._associations.are_any = await self.services.any()
        self._epochs.start()

    def close(self) -> None:
        """Ends what is under way; the catalog and the store are about to close."""
        self._epochs.close()
        self.turns.close()
        self.delivery.close()

    def declared(self) -> Declarations:
        return {
            OpenService: needs(PUBLISH, all_services, self.told_later(self._open)),
            CloseService: own(self.told_later(self._close_service)),
            Associate: own(self.turns.together(self._demands.telling_run(self._associate))),
            Dissociate: own(self.told_later(self._dissociate)),
            SubscribeService: heavy(own(self.told_later(self._subscribe))),
            AskRanges: heavy(own(self.told_later(self._ranges))),
            AskLists: heavy(own(self.told_later(self._lists))),
            **self._queue_commands.declared(),
        }

    def told_later(self, handle: Callable[[Any, Any], Awaitable[Answer]]) -> GuardedHandler:
        """As a task, in the turn of its session; the audit hears of what it refuses for want of a right."""
        return self.turns.later(self._demands.telling(handle, lambda _: SERVICES))

    def judge_soon(self) -> None:
        """Rights have changed: who may not act for its service any more is told, and a plain client then."""
        self._judging.soon()

    def _judge_all(self) -> Generator[None, None, None]:
        for session, acting in list(self._by_session.items()):
            try:
                if self._by_session.get(session) is acting:
                    self._demand_to_act(session, acting)
            except (Denied, RightsUnknown) as error:
                self._queues.refusals.tell(session, OpenService.__name__, SERVICES, error.code)
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
        digest = await self.services.digest(service.at(self.home))
        return self._opened_as(call, service, digest)

    def _opened_as(self, call: int, service: OpenedService, digest: Digest) -> ServiceOpened:
        return ServiceOpened(
            *(call, service.id, service.salt, digest.count, digest.hash),
            *(self._node_id, self.home, service.epoch),
        )

    async def _close_service(self, session: Session, call: CloseService) -> Answer:
        """The session is a plain one again; what it has of the service's comes again to the next."""
        self._leave(session)
        return ServiceClosed(call.call)

    async def _associate(self, session: Session, calls: list[Associate]) -> list[Answer]:
        """A run of them is one statement: the answers tell the digest after all."""
        acting = self._acting(session)
        named = (queue_id for call in calls for queue_id in call.queues)
        async with self._associations.turns_of_owners(session, named):
            admitted = [self._associations.admitted(session, call.queues) for call in calls]
            good = [queue_id for queues, _ in admitted for queue_id in queues]
            with self._fenced():
                digest, changed = await self._associations.add(acting, good)
        self.delivery.add(acting.service.number, good)
        absent = self._absent(one for _, refused in admitted for one in refused)
        homes = await self._elsewhere(session, absent)
        if acting.has_strays and absent:
            # Of no part yet, and of no home: nobody would ever take them out.
            gone = [queue for queue in absent if queue not in homes]
            with self._fenced(), unsure("the queues were dissociated", HARMLESS):
                await self._associations.remove_from(acting, gone)
        answers: list[Answer] = []
        for call, (_, refused) in zip(calls, admitted, strict=True):
            counted = changed if not answers else 0
            answers.append(
                Associated(
                    *(call.call, counted, digest.count, digest.hash),
                    tuple(one for one in refused if one[0] not in homes),
                    tuple((queue, homes[queue]) for queue, _ in refused if queue in homes),
                )
            )
        return answers

    def _absent(self, refused: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """Those that were refused because they are not here."""
        absent = (queue for queue, code in refused if code == NotFound.code)
        return [queue for queue in absent if self._store.glance(queue) is None]

    async def _elsewhere(self, session: Session, absent: list[bytes]) -> dict[bytes, bytes]:
        """Of queues that are not here those of other homes, with their numbers.

        That one is not found is final only where no other home has it: a client forgets it by that word.
        """
        if not absent or self._homes is None:
            return {}
        return await self._homes.numbers_elsewhere(session.rights, absent)

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        """What the catalog refuses because the service was taken over elsewhere ends it here at once."""
        try:
            yield
        except ServiceTaken:
            self.turns.spawn(self._epochs.look())
            raise

    async def _dissociate(self, session: Session, call: Dissociate) -> Answer:
        acting = self._acting(session)
        part = acting.service.at(self.home)
        prefixes = _prefixes(call)
        changed = 0
        async with self.turns.turn(part.service):
            with self._fenced(), unsure("the queues were dissociated", HARMLESS):
                if any(prefix.bits == 0 for prefix in prefixes):
                    async for page in self.services.pages(part, SERVICE_PAGE_QUEUES):
                        changed += await self._associations.remove_from(acting, page)
                else:
                    named = await self.services.queues_in(part, prefixes)
                    changed += await self._associations.remove_from(acting, named)
                digest = await self.services.digest(part)
        return Dissociated(call.call, changed, digest.count, digest.hash)

    async def _subscribe(self, session: Session, call: SubscribeService) -> Answer:
        acting = self._acting(session)
        self._check_home(call.home)
        theirs = Digest(call.count, call.hash)
        epoch = await self._epoch(acting, call.epoch)
        acting.epoch = epoch
        with self._fenced():
            await self._prove(acting)
        answered = await self._verified(acting, call)
        self._count(answered.digest, theirs)
        if not session.is_open:
            return self._soks(call.call, answered, acting)
        if self._acting(session) is not acting:
            raise NotAuthorized("this session acts for another service by now")
        if acting.is_over:
            # Taken over before, and back.
            acting = self._by_session[session] = ServiceSession(acting.service, session)
            acting.is_checked, acting.epoch = True, epoch
        acting.hears_agreement = call.hears_agreement
        acting.told = Told(self._queues.clock.stamp_ms() * 1_000, theirs, answered.digest)
        self.compared(acting.service.id)
        self.delivery.take_over(acting, answered.digest)
        rest = answered.payload[PAYLOAD_PER_BLOCK:]
        if rest or acting.subscriber is None:
            # What is pushed must follow the answer, which leaves when this returns.
            self.turns.spawn(self._after_soks(acting, call.call, rest, call.window))
        return self._soks(call.call, answered, acting)

    def _soks(self, call: int, answered: Answered, acting: ServiceSession) -> ServiceSubscribed:
        told = soks_of(call, answered, acting.absent)
        return msgspec.structs.replace(told, home=self.home, epoch=acting.epoch)

    async def _epoch(self, acting: ServiceSession, wanted: int) -> int:
        """A new one for who takes the service over; that of who has, if it has it still."""
        number = acting.service.number
        if not wanted:
            with unsure("the service was taken over", HARMLESS):
                return await self.services.take(number)
        found = (await self.services.epochs([number])).get(number)
        if found is not None and found.epoch < wanted:
            # The catalog was restored from a backup: it knows nothing of who has the service.
            return await self._epoch(acting, 0)
        if found is None or found.epoch != wanted:
            self.turns.spawn(self._epochs.look())
            raise ServiceTaken("another session of this service took over")
        return wanted

    def _check_home(self, home: bytes) -> None:
        """A part that is meant is that of our home, or nothing is compared with it."""
        if home not in (b"", self.home):
            raise NotFound(
                f"this node has the home {self.home.hex()}, and not {home.hex()}: ask for the homes again"
            )

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
        await self._associations.adopt(acting)
        part = acting.service.at(self.home)
        checked = await self.services.checked(part, self._store.lacking)
        acting.absent = checked.absent
        if not checked.is_right:
            async with self.turns.turn(part.service):
                found = await self.services.put_right(part)
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

    def _is_its_own(self, session: Session, queue: Queue) -> bool:
        """Whether this session may associate it."""
        return self._queues.owners.is_owner(session.rights, queue)

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
