"""The role `resolver` behind a real listener, without a catalog: rows and nodes are given by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from tests.access.world import World
from tests.resolver.publishing import Listener, WirePublisher, caller_to

from moorline.access.guard import Guard
from moorline.access.quotas import Allowance, Quotas, QuotaTable, account_of
from moorline.catalog.catalog import NodeRow
from moorline.catalog.homes import HomeRow
from moorline.config.addresses import Address
from moorline.config.resolver import Resolver
from moorline.core.access.principal import LOOPBACK, Proof
from moorline.core.access.quota import Bounds
from moorline.core.access.right import EVERYTHING
from moorline.core.access.row import Row
from moorline.net.caller import Caller
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.net.session_rights import SessionRights
from moorline.resolver.commands import ResolverBroker
from moorline.wire.link import Welcome

OPEN_TO_ALL = Row("/", LOOPBACK, grants=EVERYTHING)


class ResolverServer:
    """One resolver."""

    def __init__(self, settings: Resolver, world: World, *, is_new: bool) -> None:
        self.world = world
        self.principal = "anonymous"
        """Whom the next connection is taken for."""
        self.is_far = False
        """Whether that one has the rights of somebody elsewhere."""
        self.user_version = 0
        self.session: Session | None = None
        """The one that came last."""
        self.refusals: list[tuple[str, str, str]] = []
        self.nodes: list[NodeRow] = []
        self.homes: dict[bytes, HomeRow] = {}
        self.quotas = Quotas(QuotaTable(), lambda _: ())
        self.broker = ResolverBroker(
            settings,
            self._nodes,
            self._homes,
            world.table,
            self.refused,
            is_new=is_new,
        )
        handlers: Any = Guard(self).guarded(self.broker.declared())
        self._listeners = Listeners(
            Admission("loopback", 1_000, 10_000, 60_000), rights_of=self._entered
        )
        self._native = NativeProtocol(handlers, _welcome)
        self.address = ""
        self._stack = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *rows: Row,
        is_new: bool = True,
        port: int = 0,
        **settings: Any,
    ) -> AsyncIterator["ResolverServer"]:
        world = await World.loaded(*(rows or (OPEN_TO_ALL,)))
        wanted = {"ttl_ms": 2_000, "proof_timeout_ms": 10_000} | settings
        server = cls(Resolver(**wanted), world, is_new=is_new)
        address = Address("tcp", "127.0.0.1", port)
        (found,) = await server._listeners.open(address, None, server._native)
        server.address = str(found)
        broker = server.broker
        tasks = [
            asyncio.create_task(broker.tick_forever()),
            asyncio.create_task(broker.purge_forever()),
        ]
        try:
            yield server
        finally:
            await server._stack.aclose()
            for task in tasks:
                task.cancel()
            await server._listeners.close()
            broker.close()

    async def caller(self, principal: str = "anonymous") -> Caller:
        """A connection of that principal, closed with the server."""
        self.principal = principal
        caller = await caller_to(self.address)
        self._stack.callback(caller.abandon)
        return caller

    async def publisher(
        self, *paths: str, principal: str = "anonymous", flags: int = 0
    ) -> WirePublisher:
        """One that is logged in and publishes these, with a listener of its own."""
        listener = await self._stack.enter_async_context(Listener.open())
        publisher = WirePublisher(await self.caller(principal), listener)
        await publisher.open()
        if paths:
            answer = await publisher.publish(*paths, flags=flags)
            assert answer.refused == []
        return publisher

    async def listener(self) -> Listener:
        return await self._stack.enter_async_context(Listener.open())

    async def change_rights(self, *rows: Row) -> None:
        for row in rows:
            self.world.source.put(row)
        await self.world.table.refresh()
        self.broker.judge_soon()

    def bound(self, principal: str, bounds: Bounds) -> None:
        self.quotas.load(QuotaTable({principal: bounds}))

    # The audit.

    def refused(self, _: Any, /, act: str, path: str, code: str) -> None:
        self.refusals.append((act, path, code))

    def _entered(self, session: Session) -> SessionRights:
        self.session = session
        is_anonymous = self.principal == "anonymous"
        proof = Proof.NOTHING if is_anonymous else Proof.PASSWORD
        name = account_of(self.principal, session.is_local)
        session.allowance = Allowance(self.quotas, self.quotas.held_by(name), name)
        session.identity = msgspec.structs.replace(session.identity, user_version=self.user_version)
        is_local = session.is_local and not self.is_far
        return self.world.table.rights(self.principal, proof, is_local=is_local)

    async def _nodes(self, silent_ms: int) -> list[NodeRow]:  # noqa: ARG002
        return self.nodes

    async def _homes(self) -> dict[bytes, HomeRow]:
        return self.homes


def _welcome(version: int, keepalive_ms: int) -> Welcome:
    return Welcome(version, "node-1", "test", ("resolver",), keepalive_ms, "node-1")
