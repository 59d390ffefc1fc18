"""Room: services. Which services were taken over at other nodes, asked of the catalog for all of them at
once.

A takeover counts the epoch of its service on in the catalog. What changes a set names its epoch and is
refused there at once. Deliveries ask nobody: they end when the newer subscriber comes to this node, or
here, within SERVICE_EPOCHS_LOOK_MS, where it cannot reach this node.
"""

import asyncio
import logging

from moorline.catalog.services import Services
from moorline.errors import MoorlineError
from moorline.limits import SERVICE_EPOCHS_LOOK_MS
from moorline.services.delivery import ServiceDelivery, ServiceSession

log = logging.getLogger("moorline.queues")


class Epochs:
    """Looks after the sessions that are subscribed at this node."""

    def __init__(self, services: Services, delivery: ServiceDelivery) -> None:
        self._services = services
        self._delivery = delivery
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._look_forever())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(SERVICE_EPOCHS_LOOK_MS / 1_000)
            try:
                await self.look()
            except (MoorlineError, OSError, TimeoutError) as error:
                # Nobody can take a service over without the catalog either.
                log.info("the epochs of services are not known", extra={"error": str(error)})
            except Exception:
                log.exception("the epochs of services are not known")

    async def look(self) -> None:
        subscribed = list(self._delivery.subscribed.values())
        if not subscribed:
            return
        epochs = await self._services.epochs([acting.service.number for acting in subscribed])
        for acting in subscribed:
            found = epochs.get(acting.service.number)
            if found is not None and found.is_disabled:
                acting.is_over = True
                acting.session.close(
                    "DISABLED", f"the operator has disabled the service {acting.service.name}"
                )
            elif found is not None and found.epoch > acting.epoch:
                await self._end(acting)

    async def _end(self, acting: ServiceSession) -> None:
        digest = await self._delivery.digest(acting)
        if self._delivery.subscribed.get(acting.service.number) is acting:
            log.info(
                "a service was taken over at another node",
                extra={"service": acting.service.name},
            )
            self._delivery.tell_over(acting, digest)
            self._delivery.retire(acting)
