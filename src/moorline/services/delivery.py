"""Room: services. Deliveries to services: which session has a service, and what its queues have for it.

The newest session of a service has it. What waits is sent to it when it subscribes, and then ALLS; what comes
later finds its way by the routes. A queue that is associated or freed changes hands here.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from moorline.catalog.services import OpenedService, Services
from moorline.core.queue.queue import Queue
from moorline.core.sets.digest import Digest
from moorline.errors import MoorlineError, ServiceTaken
from moorline.ids import ID_BYTES
from moorline.limits import SERVICE_IN_FLIGHT_MAX, SERVICE_PAGE_QUEUES
from moorline.net.session import Session
from moorline.queues.commands import QueueBroker
from moorline.queues.subscription import Subscriber
from moorline.services.routing import Routes
from moorline.wire.service import AllDelivered, ServiceEnded


class Told(NamedTuple):
    """The digests of the two sides, at one moment."""

    at_us: int
    theirs: Digest
    ours: Digest


class ServiceSession:
    """A session that acts for a service."""

    def __init__(self, service: OpenedService, session: Session) -> None:
        self.service = service
        self.session = session
        self.epoch = service.epoch
        """For which it asks: its own once it has subscribed. 0 for an operator's, which fences nothing."""
        self.subscriber: Subscriber | None = None
        self.is_over = False
        self.is_checked = False
        """Whether the digest was proven since the session opened the service the last time."""
        self.absent = 0
        """Associated queues of our part that this node did not have then."""
        self.told: Told | None = None
        """What it said of its own list last, for people."""
        self.hears_agreement = False
        """Whether it agrees anew when it is asked to."""
        self.has_strays = False
        """Whether the service has associations of no part, which no node has taken."""


class ServiceDelivery:
    """The sessions that are subscribed for services, one for each, and what is on its way to them."""

    def __init__(self, services: Services, queues: QueueBroker) -> None:
        self.subscribed: dict[int, ServiceSession] = {}
        self.moved: Callable[[bytes], None] = lambda _: None
        """Hears of a service that is subscribed from now on, or is no longer."""
        self._services = services
        self._subscriptions = queues.subscriptions
        self._store = queues.store
        self._home = queues.store.options.home
        self._owners = queues.owners
        self._routes = Routes(services, queues.store, self._attach)

    def close(self) -> None:
        self._routes.close()

    # --- sessions come and go ---------------------------------------------------------------------

    def take_over(self, acting: ServiceSession, digest: Digest) -> None:
        """The newest session of a service has it; an older one is told."""
        number = acting.service.number
        older = self.subscribed.get(number)
        if older is not None and older is not acting:
            if older.epoch > acting.epoch:
                raise ServiceTaken("another session of this service took over")
            self.tell_over(older, digest)
            self._free(older)
        self.subscribed[number] = acting
        self._subscriptions.route = self._routes.find
        self.moved(acting.service.id)

    async def digest(self, acting: ServiceSession) -> Digest:
        """Of our part of its service."""
        return await self._services.digest(acting.service.at(self._home))

    def tell_over(self, acting: ServiceSession, digest: Digest) -> None:
        """ENDS, once: another session has the service, at this node or at another."""
        if not acting.is_over:
            acting.is_over = True
            acting.session.send(ServiceEnded(digest.count, digest.hash))

    def retire(self, acting: ServiceSession) -> None:
        """The session is over, or its service is."""
        acting.is_over = True
        if self.subscribed.get(acting.service.number) is acting:
            del self.subscribed[acting.service.number]
            if not self.subscribed:
                self._subscriptions.route = None
            self.moved(acting.service.id)
        self._free(acting)

    def _free(self, acting: ServiceSession) -> None:
        """Its queues are free; those that the session reads as a plain client stay with it."""
        if acting.subscriber is not None:
            self._subscriptions.leave(acting.subscriber)
            acting.subscriber.end()

    async def begin(self, acting: ServiceSession, window: int) -> None:
        """What waits, as fast as the client takes it; then ALLS. Nothing, if it has begun already."""
        if acting.subscriber is not None or acting.is_over:
            return
        acting.subscriber = subscriber = Subscriber(acting.session, window, SERVICE_IN_FLIGHT_MAX)
        try:
            await self._deliver_all(acting, subscriber)
        except MoorlineError as error:
            # Half a subscription would be a silent one: the client is to come again.
            acting.session.close(error.code, str(error))
        except Exception as error:
            acting.session.close("INTERNAL", type(error).__name__)
            raise

    async def _deliver_all(self, acting: ServiceSession, subscriber: Subscriber) -> None:
        delivered = 0
        async for page in self._services.pages(acting.service.at(self._home), SERVICE_PAGE_QUEUES):
            whole = [queue_id for queue_id in page if len(queue_id) == ID_BYTES]
            for queue in self._store.waiting(whole):
                await self._room(acting, subscriber)
                if acting.is_over or not acting.session.is_open:
                    return
                self._attach(acting.service.number, queue)
                delivered += queue.delivered
        acting.session.send(AllDelivered(delivered))

    async def _room(self, acting: ServiceSession, subscriber: Subscriber) -> None:
        """Waits while the session is slower than we are, or has too much unacknowledged."""
        while acting.session.is_open and not acting.is_over:
            if not acting.session.writable:
                await acting.session.room_to_write()
            elif subscriber.is_full:
                await subscriber.room()
            else:
                return

    # --- queues come and go -----------------------------------------------------------------------

    def add(self, number: int, queues: list[bytes]) -> None:
        """What waits in new queues goes to the session that is subscribed, whoever added them."""
        for queue_id in queues:
            live = self._store.live.get(queue_id)
            if live is not None:
                self._subscriptions.yield_to_service(live)
        acting = self.subscribed.get(number)
        if acting is not None and acting.subscriber is not None:
            for queue in self._store.waiting(queues):
                self._attach(number, queue)

    def remove(self, queues: list[bytes]) -> None:
        """They are nobody's now; what is on its way comes to whoever subscribes next."""
        self.forget_routes(queues)
        for queue_id in queues:
            queue = self._store.live.get(queue_id)
            if queue is not None:
                self._subscriptions.detach(queue)

    def wake(self, queue_id: bytes) -> None:
        """Finds out whose the waiting messages of a queue are that has lost its reader."""
        queue = self._store.live.get(queue_id)
        if queue is not None:
            self._subscriptions.serve([queue])

    def forget_routes(self, queues: Iterable[bytes]) -> None:
        """Their associations have changed: whose they are is asked of the catalog again."""
        self._routes.forget(queues)

    def _attach(self, number: int, queue: Queue) -> None:
        """Gives a queue's messages to the session of that service, if there is one."""
        acting = self.subscribed.get(number)
        if acting is None or acting.subscriber is None or queue.blocked or queue.damaged:
            return
        if self._owners.why_not_read(acting.session.rights, queue.id, queue) is not None:
            # Associated while it was its own. It is another's now, who can take it back.
            return
        self._subscriptions.attach(queue, acting.subscriber)
