"""A publisher by its wire messages alone: a real listener that answers dials, and calls to one resolver."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from moorline.config.addresses import Address, listen_address
from moorline.core.directory.path import entry_id
from moorline.core.directory.token import AddressQuestion, address_proof, login_of
from moorline.core.sets.digest import Digest
from moorline.net.address_dial import BY_ADDRESS
from moorline.net.caller import Caller, open_caller
from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import Challenge, Hello
from moorline.wire.protocol import node_decoder
from moorline.wire.resolver import (
    ClosePublisher,
    Heartbeat,
    HeartbeatHeard,
    HoldersJudged,
    JudgeHolders,
    OpenPublisher,
    PathsPublished,
    PathsResolved,
    PathsUnpublished,
    PublisherClosed,
    PublisherOpened,
    PublishPaths,
    ResolvePaths,
    UnpublishPaths,
)

ANYBODY = ("anonymous",)


async def caller_to(address: str) -> Caller:
    return await open_caller(
        listen_address(address),
        lambda: Caller("test", hello_timeout_ms=10_000, keepalive_ms=60_000),
        timeout_ms=10_000,
    )


class Listener:
    """Answers the dials of resolvers for the logins that it knows the keys of."""

    def __init__(self) -> None:
        self.address = ""
        self.keys: dict[bytes, bytes] = {}
        self.dials = 0
        self.is_silent = False
        self.held: list[asyncio.Event] = []
        """The next dials are answered when these are set, one for each."""

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Listener"]:
        listener = cls()
        server = await asyncio.start_server(listener._answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        listener.address = str(Address("tcp", host, port))
        try:
            yield listener
        finally:
            server.close()

    def key(self) -> bytes:
        """Of a new login."""
        key = secrets.token_bytes(32)
        self.keys[login_of(key)] = key
        return key

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        try:
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            (hello,) = node_decoder.decode(memoryview(await reader.readexactly(length)))
            assert isinstance(hello, Hello)
            assert hello.mechanism == BY_ADDRESS
            question = AddressQuestion.parse(hello.proof)
            assert question is not None
            if self.held:
                await self.held.pop(0).wait()
            if self.is_silent:
                await reader.read()
            elif (key := self.keys.get(question.login)) is not None:
                writer.write(frame([Challenge(address_proof(key, question))]))
        finally:
            writer.close()


class WirePublisher:
    """One login at one resolver."""

    def __init__(self, caller: Caller, listener: Listener, instance: bytes = b"") -> None:
        self.caller = caller
        self.listener = listener
        self.instance = instance or secrets.token_bytes(16)
        self.opened: PublisherOpened | None = None

    async def open(
        self,
        address: str = "",
        *,
        mechanisms: tuple[str, ...] = ANYBODY,
        priority: int = 1,
        key: bytes = b"",
    ) -> PublisherOpened:
        self.opened = await self.caller.call(
            lambda call: OpenPublisher(
                call,
                self.instance,
                address or self.listener.address,
                mechanisms,
                key or self.listener.key(),
                priority,
            ),
            PublisherOpened,
        )
        return self.opened

    async def publish(self, *paths: str, flags: int = 0) -> PathsPublished:
        entries = [(path, flags) for path in paths]
        return await self.caller.call(lambda call: PublishPaths(call, entries), PathsPublished)

    async def unpublish(self, *paths: str) -> PathsUnpublished:
        return await self.caller.call(
            lambda call: UnpublishPaths(call, list(paths)), PathsUnpublished
        )

    async def beat(self, digest: Digest) -> HeartbeatHeard:
        return await self.caller.call(
            lambda call: Heartbeat(call, digest.count, digest.hash), HeartbeatHeard
        )

    async def judge(self, claims: Sequence[tuple[str, int, object]]) -> HoldersJudged:
        return await self.caller.call(
            lambda call: JudgeHolders(call, list(claims)),  # type: ignore[arg-type]
            HoldersJudged,
        )

    async def close(self) -> None:
        await self.caller.call(ClosePublisher, PublisherClosed)


def digest_of(*paths: str, flags: int = 0) -> Digest:
    return Digest.of(entry_id(path, flags) for path in paths)


async def resolve(caller: Caller, *paths: str) -> PathsResolved:
    return await caller.call(lambda call: ResolvePaths(call, list(paths)), PathsResolved)


async def codes(caller: Caller, *paths: str) -> list[str]:
    return [found.code for found in (await resolve(caller, *paths)).found]
