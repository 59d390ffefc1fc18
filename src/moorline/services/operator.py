"""Room: services. What operators ask of services: see them, compare, put right, repair, switch off and on.

An operator's session can act for a service that it names. Then the commands of a reconciliation work in it
as they do for the service itself, with two differences: they look at the associations and never at the kept
digests, which may be what is wrong; and nothing is subscribed, so that the service's own session goes on.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from moorline.catalog.catalog import Catalog
from moorline.catalog.outcome import unsure
from moorline.catalog.service_audit import Meant, OperatorServices
from moorline.catalog.services import ServiceRow
from moorline.core.sets.digest import Digest
from moorline.errors import Ambiguous, NotAuthorized, NotFound
from moorline.net.session import Handler, Handlers, Session
from moorline.queues.commands import QueueBroker
from moorline.services.commands import ServiceBroker, push_payload, soks_of
from moorline.services.delivery import ServiceSession
from moorline.services.service_set import AuditedServiceSet, ServiceSet
from moorline.wire.message import Answer
from moorline.wire.service import (
    PAYLOAD_PER_BLOCK,
    CloseService,
    OpenService,
    ServiceOpened,
    SubscribeService,
)
from moorline.wire.service_operator import (
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


class OperatorBroker(ServiceBroker):
    """Answers the commands of services, and those of operators about them."""

    def __init__(self, catalog: Catalog, queues: QueueBroker, node_id: bytes = b"") -> None:
        self._rows = OperatorServices(catalog)
        super().__init__(self._rows, queues, node_id)
        self._operating: dict[Session, bytes] = {}
        """Sessions of operators that act for a service, and its fingerprint."""

    def handlers(self) -> Handlers:
        return super().handlers() | {
            ListServices: self._operators(self._list_services),
            DescribeService: self.turns.later(self._describe),
            RecomputeService: self._operators(self._recompute),
            SwitchService: self._operators(self._switch),
            ListServiceQueues: self.turns.later(self._list_queues),
            OpenNamedService: self._operators(self._open_named),
            VerifyService: self._operators(self._verify),
        }

    # --- looking ----------------------------------------------------------------------------------

    async def _list_services(self, session: Session, call: ListServices) -> Answer:  # noqa: ARG002
        rows = await self.services.all()
        chosen = rows[call.skip : call.skip + call.count]
        return ServicesListed(
            call.call, len(rows), [self._facts(row, row.digest) for row in chosen]
        )

    async def _describe(self, session: Session, call: DescribeService) -> Answer:
        service = await self._named(session, call.service)
        found = await self._rows.checked(service.number, self._store.lacking)
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
        service = await self._named(session, call.service)
        digest = await self.services.digest(service.number)
        page = await self._rows.page(service.number, call.after, call.count)
        return ServiceQueuesListed(call.call, digest.count, page)

    # --- changing ---------------------------------------------------------------------------------

    async def _recompute(self, session: Session, call: RecomputeService) -> Answer:
        service = await self._named(session, call.service)
        async with self.turns.turn(service.number):
            found = await self._rows.put_right(service.number)
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

    async def _switch(self, session: Session, call: SwitchService) -> Answer:
        async with self.turns.turn(OPENING):
            service = await self._named(session, call.service)
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
        service = await self._named(session, call.service)
        if session not in self._operating:
            self._watch(session)
        self._operating[session] = service.fingerprint
        self._by_session[session] = ServiceSession(service.opened(), session)
        digest = await self._rows.recomputed(service.number)
        return ServiceOpened(
            call.call, service.id, service.salt, digest.count, digest.hash, self._node_id
        )

    async def _verify(self, session: Session, call: VerifyService) -> Answer:
        if session not in self._operating:
            raise NotAuthorized("this session acts for no service: name it first")
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

    async def _close_service(self, session: Session, call: CloseService) -> Answer:
        self._operating.pop(session, None)
        return await super()._close_service(session, call)

    async def _subscribe(self, session: Session, call: SubscribeService) -> Answer:
        if session in self._operating:
            raise NotAuthorized(
                "an operator verifies a service, and is not subscribed in its place"
            )
        return await super()._subscribe(session, call)

    def _owner_for(self, session: Session) -> bytes:
        """An operator gives a service only what is the service's own."""
        return self._operating.get(session, session.identity.fingerprint)

    # --- inside -----------------------------------------------------------------------------------

    async def _named(self, session: Session, text: str) -> Meant:
        """The one service that is meant; a service may name itself, and nobody else but an operator."""
        rows = await self._rows.meant(text)
        if not self._queues.is_operator(session):
            rows = [row for row in rows if row.fingerprint == session.identity.fingerprint]
            if not rows:
                raise NotAuthorized("only an operator may do this: see queues.operators")
        if not rows:
            raise NotFound(f"there is no service {text!r}: `moor service list` shows all")
        if len(rows) > 1:
            shown = [f"{row.name} {row.fingerprint.hex()[:16]}" for row in rows[:CANDIDATES_MAX]]
            more = " and others" if len(rows) > CANDIDATES_MAX else ""
            raise Ambiguous(
                f"{text!r} is {len(rows)} services: {', '.join(shown)}{more}; "
                "name one by its id or a longer part of its fingerprint"
            )
        return rows[0]

    def _sessions_of(self, number: int) -> list[ServiceSession]:
        """Sessions that the service itself has on this node."""
        return [
            acting
            for session, acting in self._by_session.items()
            if acting.service.number == number and session not in self._operating
        ]

    def _left(self, session: Session) -> None:
        self._operating.pop(session, None)
        super()._left(session)

    def _operators(self, handle: Callable[[Session, Any], Awaitable[Answer]]) -> Handler:
        """A handler for operators only."""

        async def checked(session: Session, call: Any) -> Answer:
            if not self._queues.is_operator(session):
                raise NotAuthorized("only an operator may do this: see queues.operators")
            return await handle(session, call)

        return self.turns.later(checked)
