"""Publishers and subscribers around one resolver, in the test's own process."""

from contextlib import AsyncExitStack
from typing import Any

from tests.resolver.server import ResolverServer

from moorline.client.values.publisher import Publisher, PublisherSettings
from moorline.client.values.subscriber import Subscriber, SubscriberSettings


class Values:
    """One resolver, and who comes to it."""

    def __init__(self, server: ResolverServer, stack: AsyncExitStack) -> None:
        self.server = server
        self._stack = stack

    async def publisher(self, *addresses: str, **settings: Any) -> Publisher:
        quick = {"heartbeat_ms": 200} | settings
        made = Publisher(addresses or [self.server.address], settings=PublisherSettings(**quick))
        return await self._stack.enter_async_context(made)

    async def subscriber(
        self, *addresses: str, conflate: bool = False, **settings: Any
    ) -> Subscriber:
        quick = {"dead_ms": 2_000, "timeout_ms": 5_000} | settings
        made = Subscriber(
            addresses or [self.server.address],
            conflate=conflate,
            settings=SubscriberSettings(**quick),
        )
        return await self._stack.enter_async_context(made)
