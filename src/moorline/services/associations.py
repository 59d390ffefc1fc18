"""Room: services. Which queues a service has: what may be associated, and every change of it.

A change goes to the catalog first, then to what this node keeps of it: routes, sketches, deliveries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from moorline.catalog.outcome import HARMLESS, unsure
from moorline.catalog.service_check import CheckedServices
from moorline.catalog.services import Part
from moorline.core.queue.queue import Queue
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.errors import Denied, NotFound
from moorline.ids import ID_BYTES, NO_HOME
from moorline.limits import SERVICE_ADOPTED_TOGETHER
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.queues.commands import QueueBroker
from moorline.queues.owners import path_of
from moorline.services.delivery import ServiceDelivery, ServiceSession
from moorline.services.sketches import Sketches
from moorline.wire.service import Associate


class Associations:
    """Changes which queues belong to which service."""

    def __init__(
        self,
        services: CheckedServices,
        sketches: Sketches,
        delivery: ServiceDelivery,
        queues: QueueBroker,
        turns: Turns,
        is_its_own: Callable[[Session, Queue], bool],
    ) -> None:
        self.are_any = True
        """False only when it is certain: then plain commands need not ask the catalog."""
        self.services = services
        self.turns = turns
        self._sketches = sketches
        self._delivery = delivery
        self._owners = queues.owners
        self._refusals = queues.refusals
        self._store = queues.store
        self._home = queues.store.options.home
        self._is_its_own = is_its_own

    def turn_of_owner(self, queue_id: bytes) -> asyncio.Lock:
        """Only the service of its owner can associate it, and not meanwhile."""
        return self.turns.turn(_owners_turn(self._owners.number_of(queue_id)))

    @asynccontextmanager
    async def turns_of_owners(
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

    def admitted(
        self, session: Session, queues: list[bytes]
    ) -> tuple[list[bytes], list[tuple[bytes, str]]]:
        """Those that may be associated, and the others with the code why not."""
        good, refused, strange = [], [], list[bytes]()
        for queue_id in queues:
            queue = self._store.glance(queue_id)
            if queue is None or not self._is_its_own(session, queue):
                # The same for both: a service hears nothing of what is another's. The audit does.
                refused.append((queue_id, NotFound.code))
                if queue is not None:
                    strange.append(queue_id)
            elif queue.blocked:
                refused.append((queue_id, "BLOCKED"))
            else:
                good.append(queue_id)
        if strange:
            # One line for them all: a call may name very many.
            path = path_of(strange[0])
            self._refusals.tell(session, Associate.__name__, path, Denied.code)
        return good, refused

    async def add(self, acting: ServiceSession, queues: list[bytes]) -> tuple[Digest, int]:
        """The digest of our part of the service behind it, and how many are new."""
        part = acting.service.at(self._home)
        async with self.turns.turn(part.service):
            self.are_any = True
            try:
                with unsure("the queues were associated", HARMLESS):
                    highs = await self.services.associate(
                        part, queues, hash_ids(queues), epoch=acting.epoch
                    )
                    digest = await self.services.digest(part)
            finally:
                # Also if nobody knows: what is kept of whose they are may be wrong from here on.
                self._delivery.forget_routes(queues)
            self._sketches.changed(part.service, highs, digest)
        return digest, len(highs)

    async def adopt(self, acting: ServiceSession) -> int:
        """Takes into our part what is of no part yet and whose queues are here; returns how many."""
        strays = acting.service.at(NO_HOME)
        if self._home == NO_HOME or not (await self.services.digest(strays)).count:
            return 0
        adopted = 0
        async for page in self.services.pages(strays, SERVICE_ADOPTED_TOGETHER):
            ours = [one for one in page if len(one) == ID_BYTES and self._store.glance(one)]
            if ours:
                adopted += (await self.add(acting, ours))[1]
        acting.has_strays = (await self.services.digest(strays)).count > 0
        return adopted

    async def remove_from(self, acting: ServiceSession, queues: list[bytes]) -> int:
        """For the service itself: those of our part, or of none, leave it."""
        changed = 0
        for home in dict.fromkeys((self._home, NO_HOME)):
            part = acting.service.at(home)
            highs = await self.services.dissociate_from(part, queues, epoch=acting.epoch)
            changed += len(highs)
            if home == self._home and len(highs):
                self._sketches.changed(part.service, highs, await self.services.digest(part))
        self._delivery.remove(queues)
        return changed

    async def remove(self, queues: list[bytes]) -> int:
        """Takes associations away, whosever they are, and the deliveries with them."""
        if not self.are_any:
            return 0
        with unsure("the queue was taken from its service", HARMLESS):
            gone = await self.services.dissociate(queues)
            for number, highs in gone.items():
                digest = await self.services.digest(Part(number, self._home))
                self._sketches.changed(number, highs, digest)
        self._delivery.remove(queues)
        return sum(len(highs) for highs in gone.values())


def _owners_turn(number: int | None) -> tuple[str, int | None]:
    """By the owner's number: its name may change while somebody waits, when a certificate comes again.
    A plain number is a service's turn."""
    return ("owner", number)
