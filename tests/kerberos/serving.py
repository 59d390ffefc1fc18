"""A listener that takes Kerberos alone, without a node behind it; and somebody between who changes bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from moorline.config.addresses import Address
from moorline.core.access.kerberos_name import KerberosRules
from moorline.limits import KERBEROS_CLOCK_SKEW_S
from moorline.net.authentication import Authentication, Exchange, Peer
from moorline.net.caller import Caller, open_caller
from moorline.net.kerberos import KerberosCall, KerberosExchange, KerberosService
from moorline.net.listener import Admission, Listeners, LoginRefused
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.frame import LENGTH
from moorline.wire.link import Welcome
from moorline.wire.message import Answer
from moorline.wire.node import Echo, Echoed

SERVICE = "moorline/127.0.0.1@MOOR.TEST"


class KerberosServer:
    """What any process can do that has a keytab: it is an `Authenticator` too."""

    def __init__(
        self,
        keytab: Path,
        service: str = SERVICE,
        rules: tuple[str, ...] = (),
        *,
        clock_skew_s: int = KERBEROS_CLOCK_SKEW_S,
        hello_timeout_ms: int = 30_000,
    ) -> None:
        self._service = KerberosService(keytab, service, clock_skew_s=clock_skew_s)
        self._rules = KerberosRules.parsed(rules)
        self.echoed: list[bytes] = []
        self.refused: list[LoginRefused] = []
        self.listeners = Listeners(
            Admission("everywhere", 1_000, hello_timeout_ms, 600_000), refused=self.refused.append
        )
        self._protocol = NativeProtocol(
            {Echo: self._echo},
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
        )

    def begin(self, mechanism: str, peer: Peer, /) -> Exchange:
        assert mechanism == "gssapi", peer
        return KerberosExchange(self._service, self._rules.principal_of)

    async def open(self) -> Address:
        await self._service.check()
        wanted = Address("tcp", "127.0.0.1", 0)
        demanded = Authentication(("gssapi",), self)
        (address,) = await self.listeners.open(wanted, None, self._protocol, demanded)
        return address

    @property
    def sessions(self) -> list[Session]:
        return [session for session in self.listeners.sessions if session.is_open]

    def _echo(self, _: Session, calls: list[Echo]) -> list[Answer]:
        self.echoed += [call.body for call in calls]
        return [Echoed(call.call, call.body) for call in calls]


@contextlib.asynccontextmanager
async def serving(server: KerberosServer) -> AsyncIterator[Address]:
    address = await server.open()
    try:
        yield address
    finally:
        await server.listeners.close()


async def entered(address: Address, call: KerberosCall, *, timeout_ms: int = 30_000) -> Caller:
    await call.prepare()
    return await open_caller(
        address,
        lambda: Caller("test", hello_timeout_ms=timeout_ms, keepalive_ms=600_000, credentials=call),
        timeout_ms=timeout_ms,
    )


async def echo(caller: Caller, body: bytes) -> bytes:
    return (await caller.call(lambda number: Echo(number, body), Echoed)).body


Change = Callable[[list[bytes]], list[bytes]]
"""All frames and records of one direction so far, the newest last; what is passed on for it."""


class Between:
    """Passes frames on one by one, and lets the test do to them what it likes."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.to_node: Change = lambda seen: seen[-1:]
        self.to_client: Change = lambda seen: seen[-1:]
        self.seen: dict[str, list[bytes]] = {"to_node": [], "to_client": []}

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            yield Address("tcp", "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        await asyncio.gather(
            self._pass("to_node", reader, far_writer), self._pass("to_client", far_reader, writer)
        )

    async def _pass(
        self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seen = self.seen[direction]
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                seen.append(await reader.readexactly(length))
                for frame in getattr(self, direction)(seen):
                    writer.write(LENGTH.pack(len(frame)) + frame)
                await writer.drain()
        writer.close()
