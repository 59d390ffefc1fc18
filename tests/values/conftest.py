"""Fixtures: a resolver behind a real listener, and publishers and subscribers that end with the test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.resolver.server import ResolverServer
from tests.values.world import Values


@pytest.fixture
async def values() -> AsyncIterator[Values]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ResolverServer.open())
        yield Values(server, stack)
