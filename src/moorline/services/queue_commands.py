"""Room: services. Commands of queues, where they touch what a service has.

They are the plain commands of queues/commands.py. Before each of them its queue is given to the service of
the session, or taken from the service that has it.
"""

from collections.abc import Callable, Iterable

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, Declared, demand
from moorline.core.access.right import ADMINISTER
from moorline.errors import CallFailed
from moorline.net.session import Handler, Session
from moorline.queues.commands import QueueBroker
from moorline.queues.owners import path_of
from moorline.services.associations import Associations
from moorline.services.delivery import ServiceDelivery, ServiceSession
from moorline.wire.message import Answer
from moorline.wire.queue import BlockQueue, DeleteQueue, Subscribe, Subscribed, Unsubscribe


class QueueCommands:
    """SUB, UNSUB, DEL and BLOCK, with what they do to associations."""

    def __init__(
        self,
        queues: QueueBroker,
        associations: Associations,
        delivery: ServiceDelivery,
        acting_of: Callable[[Session], ServiceSession | None],
        demands: Demands,
    ) -> None:
        self._queues = queues
        self._associations = associations
        self._delivery = delivery
        self._acting_of = acting_of
        self._demands = demands

    def declared(self) -> Declarations:
        """Each needs what it needs without services."""
        plain = self._queues.declared()
        return {
            Subscribe: _around(plain[Subscribe], self._taking),
            Unsubscribe: _around(plain[Unsubscribe], self._in_order),
            DeleteQueue: _around(plain[DeleteQueue], self._freeing),
            BlockQueue: _around(plain[BlockQueue], self._freeing),
        }

    def _taking(self, plain: Handler) -> Handler:
        """SUB: in a service session it associates; from a plain client it takes the queue back."""

        async def subscribe(session: Session, call: Subscribe) -> Answer | None:
            acting = self._acting_of(session)
            if acting is None:
                await self._take_back(session, call.queue)
                return _only(plain(session, [call]))
            number = acting.service.number
            async with self._associations.turns_of_owners(session, [call.queue]):
                good, refused = self._associations.admitted(session, [call.queue])
                if refused:
                    raise CallFailed.of(refused[0][1], "the queue cannot be associated")
                await self._associations.add(acting, good)
            self._delivery.add(number, good)
            queue = self._queues.store.glance(call.queue)
            return Subscribed(call.call, queue.size if queue else 0)

        return self._associations.turns.later(self._demands.telling(subscribe))

    async def _take_back(self, session: Session, queue_id: bytes) -> None:
        """From its service, before a plain client reads it: that is more than to read."""
        queue = self._queues.store.glance(queue_id)
        if queue is None or not self._associations.are_any:
            return
        rights, path = session.rights, path_of(queue_id)
        is_its_own = self._queues.owners.is_owner(rights, queue)
        if not is_its_own and not rights.at(path) & ADMINISTER:
            if await self._associations.services.of_queues([queue_id]):
                demand(rights, ADMINISTER, path)
            return
        await self._associations.remove([queue_id])

    def _in_order(self, plain: Handler) -> Handler:
        """A plain command that must not overtake those that wait for the catalog."""

        async def follow(session: Session, call: Unsubscribe) -> Answer | None:
            answer = _only(plain(session, [call]))
            if self._acting_of(session) is not None:
                # It is the service's still: what its reader left goes where the others go.
                self._delivery.wake(call.queue)
            return answer

        return self._associations.turns.later(follow)

    def _freeing(self, plain: Handler) -> Handler:
        """DEL and BLOCK take the association away before they change the queue."""

        async def change(session: Session, call: BlockQueue | DeleteQueue) -> Answer | None:
            async with self._associations.turn_of_owner(call.queue):
                # Behind each wait: the right may have been taken away meanwhile.
                refusal = self._queues.refusal_now(session, call)
                if refusal is None and (isinstance(call, DeleteQueue) or call.blocked):
                    await self._associations.remove([call.queue])
                    refusal = self._queues.refusal_now(session, call)
                return refusal or _only(plain(session, [call]))

        return self._associations.turns.later(change)


def _around(plain: Declared, wrap: Callable[[Handler], Handler]) -> Declared:
    return plain._replace(handler=wrap(plain.handler))


def _only(answers: Iterable[Answer]) -> Answer | None:
    """The answer that a plain handler had at once; one that comes after a commit finds its own way."""
    return next(iter(answers), None)
