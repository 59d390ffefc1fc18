"""Room: services. What operators ask of services: see them, compare, put right, repair, switch off and on.

An operator's session can act for a service that it names. Then the commands of a reconciliation work in it
as they do for the service itself, with two differences: they look at the associations and never at the kept
digests, which may be what is wrong; and nothing is subscribed, so that the service's own session goes on.
That single queues are blocked is in queues/commands.py and services/queue_commands.py.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from moorline.access.guard import Declarations, Declared, demand, heavy, own
from moorline.catalog.catalog import Catalog
from moorline.catalog.outcome import unsure
from moorline.catalog.service_audit import Meant, OperatorServices
from moorline.catalog.services import Part, ServiceRow
from moorline.core.access.right import ADMINISTER, LIST
from moorline.core.queue.queue import Queue
from moorline.core.sets.digest import Digest
from moorline.errors import Ambiguous, NotAuthorized, NotFound
from moorline.limits import HOME_ADDRESSES_MAX, SERVICE_PARTS_PER_PAGE
from moorline.net.session import Session
from moorline.queues.commands import QueueBroker
from moorline.queues.homes import QueueHomes
from moorline.services.agreements import Agreements
from moorline.services.commands import ServiceBroker, push_payload, soks_of
from moorline.services.delivery import ServiceSession
from moorline.services.rights import SERVICES, may, owner_of, path_of
from moorline.services.service_set import AuditedServiceSet, ServiceSet
from moorline.wire.message import Answer, Message
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    AgreementTold,
    ListServiceParts,
    OpenService,
    PartFacts,
    ServiceAgreed,
    ServicePartsListed,
    SubscribeService,
)
from moorline.wire.service_operator import (
    AgreeService,
    DescribeService,
    ListServiceQueues,
    ListServices,
    OpenNamedService,
    RecomputeService,
    ServiceDescribed,
    ServiceFacts,
    ServiceQueuesListed,
    ServiceRecomputed,
    ServicesListed,
    ServiceSwitched,
    SwitchService,
    VerifyService,
)

log = logging.getLogger("moorline.queues")

OPENING = "opening"
"""The turn in which services are opened, disabled and enabled: none is opened while it is disabled."""

CANDIDATES_MAX = 5
"""Services that an error about an ambiguous name tells."""


class OfOneService(Protocol):
    """A call that names a service."""

    @property
    def service(self) -> str: ...


def _services(_: object) -> str:
    return SERVICES


async def nobody_audits(_session: Session, _act: str, _path: str) -> None:
    """Where there is no audit."""


class OperatorBroker(ServiceBroker):
    """Answers the commands of services, and those of operators about them."""

    def __init__(
        self,
        catalog: Catalog,
        queues: QueueBroker,
        node_id: bytes = b"",
        homes: QueueHomes | None = None,
    ) -> None:
        self._rows = OperatorServices(catalog)
        super().__init__(self._rows, queues, node_id, homes)
        self._agreements = Agreements()
        self._operating: dict[Session, str] = {}
        """Sessions of operators that act for a service, and its owner."""
        self.audited: Callable[[Session, str, str], Awaitable[None]] = nobody_audits
        """Returns when an operator's act is written down: the session, the act and its path."""

    def declared(self) -> Declarations:
        later = self.told_later
        # A text may mean a service by its id too, and only the catalog knows its name, hence its path: each
        # of these finds it and then demands what it needs.
        asked: dict[type[Message], Declared] = {
            ListServices: heavy(own(later(self.list_services))),
            DescribeService: heavy(own(later(self.describe))),
            RecomputeService: heavy(own(later(self._recompute))),
            SwitchService: own(later(self._switch)),
            ListServiceQueues: heavy(own(later(self._list_queues))),
            ListServiceParts: own(later(self._list_parts)),
            AgreeService: heavy(
                own(self.turns.spawned(self._demands.telling(self._agree, _services)))
            ),
            AgreementTold: own(self._agreements.told),
            OpenNamedService: own(later(self._open_named)),
            VerifyService: heavy(own(later(self._verify))),
        }
        return {**super().declared(), **asked}

    def _demand_to_act(self, session: Session, acting: ServiceSession) -> None:
        if session in self._operating:
            demand(session.rights, ADMINISTER, path_of(acting.service.name))
        else:
            super()._demand_to_act(session, acting)

    # --- looking ----------------------------------------------------------------------------------

    async def list_services(self, session: Session, call: ListServices) -> Answer:
        rights = session.rights
        # Nothing is asked of the catalog for somebody whose rights nobody knows.
        rights.check_known()
        rows = await self.services.all()
        if not rights.everywhere(SERVICES) & LIST:
            rows = [row for row in rows if may(rights, LIST, row)]
            if not rows:
                demand(session.rights, LIST, SERVICES)
        chosen = rows[call.skip : call.skip + call.count]
        return ServicesListed(
            call.call, len(rows), [self._facts(row, row.digest) for row in chosen]
        )

    async def describe(self, session: Session, call: DescribeService) -> ServiceDescribed:
        service = await self._named(session, call, LIST)
        found = await self._rows.checked_all(service.number, self.home, self._store.lacking)
        return ServiceDescribed(
            call.call,
            self._facts(service, found.kept),
            len(self._sessions_of(service.number)),
            found.true.count,
            found.true.hash,
            [bucket.count for bucket in found.buckets],
            found.wrong_buckets,
            found.wrong_hashes,
            found.told,
            self._node_id,
            found.absent,
            self.home,
            *self._told(service.number),
        )

    def _told(self, number: int) -> tuple[int, int, bytes, int, bytes, bool]:
        """What the two sides said last, of the session that is subscribed here."""
        acting = self.delivery.subscribed.get(number)
        if acting is None or acting.told is None:
            return 0, 0, b"", 0, b"", False
        at_us, theirs, ours = acting.told
        return (
            *(at_us, theirs.count, theirs.hash, ours.count, ours.hash),
            acting.hears_agreement,
        )

    def _facts(self, row: Meant | ServiceRow, digest: Digest) -> ServiceFacts:
        return ServiceFacts(
            row.id,
            row.fingerprint,
            row.name,
            row.is_disabled,
            row.number in self.delivery.subscribed,
            int(row.created_at.timestamp()),
            digest.count,
            digest.hash,
        )

    async def _list_queues(self, session: Session, call: ListServiceQueues) -> Answer:
        service = await self._named(session, call, LIST)
        if call.home:
            digest = await self.services.digest(Part(service.number, call.home))
        else:
            digest = await self.services.sum(service.number)
        page = await self._rows.page(service.number, call.after, call.count, call.home)
        return ServiceQueuesListed(call.call, digest.count, page)

    async def _list_parts(self, session: Session, call: ListServiceParts) -> Answer:
        if call.service:
            number = (await self._named(session, call, LIST)).number
        else:
            number = self._acting(session).service.number
        found = await self.services.parts(number, call.after)
        digest = await self.services.sum(number)
        parts = tuple(
            PartFacts(
                *(row.home, row.name, row.node_id, row.node),
                tuple(row.addresses[:HOME_ADDRESSES_MAX]),
                *(row.is_alive, row.digest.count, row.digest.hash),
            )
            for row in found
        )
        is_last = len(found) < SERVICE_PARTS_PER_PAGE
        return ServicePartsListed(call.call, digest.count, digest.hash, parts, is_last)

    # --- changing ---------------------------------------------------------------------------------

    async def _recompute(self, session: Session, call: RecomputeService) -> Answer:
        service = await self._named(session, call, ADMINISTER)
        async with self.turns.turn(service.number):
            found = await self._rows.put_all_right(service.number)
        return ServiceRecomputed(
            call.call,
            found.kept.count,
            found.kept.hash,
            found.true.count,
            found.true.hash,
            len(found.wrong_buckets),
            found.wrong_hashes,
            found.told,
        )

    async def _agree(self, session: Session, call: AgreeService) -> Answer:
        """A task that no turn is held for: the service's own calls must be answered meanwhile."""
        service = await self._named(session, call, ADMINISTER)
        acting = self.delivery.subscribed.get(service.number)
        if acting is None:
            raise NotFound(
                f"the service {service.name} is not subscribed at this node: only its own side knows its list"
            )
        if not acting.hears_agreement:
            raise NotAuthorized(
                f"the client of the service {service.name} is older than the node: it agrees when it connects"
            )
        return ServiceAgreed(call.call, await self._agreements.wanted(acting.session))

    async def _switch(self, session: Session, call: SwitchService) -> Answer:
        async with self.turns.turn(OPENING):
            service = await self._named(session, call, ADMINISTER)
            with unsure("the service was switched"):
                await self.services.disable(service.number, is_disabled=call.is_disabled)
            ended = self._sessions_of(service.number) if call.is_disabled else []
            for acting in ended:
                acting.is_over = True
                acting.session.close(
                    "DISABLED", f"the operator has disabled the service {service.name}"
                )
        return ServiceSwitched(call.call, service.is_disabled != call.is_disabled, len(ended))

    # --- acting for a service ---------------------------------------------------------------------

    async def _open_named(self, session: Session, call: OpenNamedService) -> Answer:
        if session in self._by_session and session not in self._operating:
            raise NotAuthorized("this session acts for its own service: use another one")
        service = await self._named(session, call, ADMINISTER)
        if session not in self._operating:
            self._watch(session)
        self._operating[session] = owner_of(service)
        acting = self._by_session[session] = ServiceSession(service.opened(), session)
        acting.epoch = 0  # whoever is subscribed goes on, and does not fence an operator
        digest = await self._rows.recomputed(acting.service.at(self.home))
        return self._opened_as(call.call, acting.service, digest)

    async def _verify(self, session: Session, call: VerifyService) -> Answer:
        if session not in self._operating:
            raise NotAuthorized("this session acts for no service: name it first")
        self._check_home(call.home)
        answered = await self._verified(self._acting(session), call)
        rest = answered.payload[PAYLOAD_PER_BLOCK:]
        if rest:
            # What is pushed must follow the answer, which leaves when this returns.
            self.turns.spawn(push_payload(session, call.call, rest))
        return soks_of(call.call, answered)

    def _set_of(self, acting: ServiceSession) -> ServiceSet:
        if acting.session in self._operating:
            return AuditedServiceSet(self._rows, self.sketches, acting.service)
        return super()._set_of(acting)

    async def _open(self, session: Session, call: OpenService) -> Answer:
        async with self.turns.turn(OPENING):
            if session in self._operating:
                self._left(session)
            return await super()._open(session, call)

    async def _subscribe(self, session: Session, call: SubscribeService) -> Answer:
        if session in self._operating:
            raise NotAuthorized(
                "an operator verifies a service, and is not subscribed in its place"
            )
        return await super()._subscribe(session, call)

    def _is_its_own(self, session: Session, queue: Queue) -> bool:
        """An operator gives a service only what is the service's own."""
        owner = self._operating.get(session)
        if owner is None:
            return super()._is_its_own(session, queue)
        return self._queues.owners.is_of(queue, owner)

    # --- inside -----------------------------------------------------------------------------------

    async def _named(self, session: Session, call: OfOneService, right: int) -> Meant:
        """The one service that is meant, of those at which this session has the right."""
        text, found = call.service, await self._rows.meant(call.service)
        rows = [row for row in found if may(session.rights, right, row)]
        if not rows:
            demand(session.rights, right, path_of(text))
            raise NotFound(f"there is no service {text!r}: `moor service list` shows all")
        if len(rows) > 1:
            shown = [f"{row.name} {row.fingerprint.hex()[:16]}" for row in rows[:CANDIDATES_MAX]]
            more = " and others" if len(rows) > CANDIDATES_MAX else ""
            raise Ambiguous(
                f"{text!r} is {len(rows)} services: {', '.join(shown)}{more}; "
                "name one by its id or a longer part of its fingerprint"
            )
        if right & ADMINISTER:
            # Nobody has this by owning the service: it is an operator's act, before it is done.
            path = path_of(rows[0].name)
            await self.audited(session, type(call).__name__, path)
            # While the line was written the right may have been taken away.
            demand(session.rights, right, path)
        return rows[0]

    def _sessions_of(self, number: int) -> list[ServiceSession]:
        """Sessions that the service itself has on this node."""
        return [
            acting
            for session, acting in self._by_session.items()
            if acting.service.number == number and session not in self._operating
        ]

    def _leave(self, session: Session) -> None:
        self._operating.pop(session, None)
        super()._leave(session)
