"""Sessions and callers over real sockets on loopback."""

import asyncio
import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from moorline.client.connecting import Connecting, connect
from moorline.config.addresses import Address
from moorline.errors import CallFailed, ConfigError, ConnectionLost, Refused, TooLarge, Unreachable
from moorline.limits import (
    CALLS_IN_FLIGHT_MAX,
    CALLS_PER_STEP,
    FRAME_BYTES_MAX,
    RECORDS_PER_CALL_MAX,
)
from moorline.net.fair_turns import FairTurns
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Handlers, Session
from moorline.net.tls import client_context, server_context
from moorline.wire.frame import LENGTH, frame
from moorline.wire.link import PROTOCOL, Hello, Welcome
from moorline.wire.message import Answer, Failed
from moorline.wire.node import Echo, Echoed
from moorline.wire.topic import Publish, Published, Record

HELLO_TIMEOUT_MS = 300
KEEPALIVE_MS = 600_000
"""So long that nobody is taken for silent because the machine is busy."""
SHORT_KEEPALIVE_MS = 400
"""For tests of silence itself."""


class Other:
    """A connection of another principal, which never says anything."""

    def hear(self, data: bytes) -> None: ...
    def keep(self, data: bytes) -> None: ...
    def take_turn(self) -> None: ...
    def abort(self) -> None: ...


def crowded() -> FairTurns:
    line = FairTurns()
    line.enter(Other(), "another")
    return line


@pytest.fixture(autouse=True, params=["alone", pytest.param("crowded", marks=pytest.mark.slow)])
def _alone_or_in_line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever holds of a session holds also where it has its turns among those of others."""
    if request.param == "crowded":
        monkeypatch.setattr("moorline.net.listener.FairTurns", crowded)


class Server:
    """Listeners with an echo, and one call that is answered only when the test says so."""

    def __init__(
        self,
        *,
        anonymous: str = "loopback",
        connections_max: int = 100,
        keepalive_ms: int = KEEPALIVE_MS,
    ) -> None:
        self.held: list[tuple[Session, Echo]] = []
        self.hold = False
        handlers: Handlers = {Echo: self._echo}
        self.protocol = NativeProtocol(
            handlers,
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
        )
        self.listeners = Listeners(
            Admission(
                anonymous=anonymous,
                connections_max=connections_max,
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=keepalive_ms,
            ),
        )

    def _echo(self, session: Session, calls: list[Echo]) -> list[Answer]:
        if self.hold:
            self.held += [(session, call) for call in calls]
            return []
        if any(call.body == b"bug" for call in calls):
            raise RuntimeError("a mistake of ours")
        return [Echoed(call.call, call.body) for call in calls]

    def release(self) -> None:
        self.hold = False
        held, self.held = self.held, []
        for session, call in held:
            session.answer([Echoed(call.call, call.body)])


@contextlib.asynccontextmanager
async def serving(
    server: Server, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Server, Address]]:
    wanted = Address("tls" if tls else "tcp", "127.0.0.1", 0)
    (address,) = await server.listeners.open(wanted, tls, server.protocol)
    try:
        yield server, address
    finally:
        await server.listeners.close()


async def raw(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(address.host, address.port)


async def test_calls_are_answered_one_by_one_and_in_batches() -> None:
    async with serving(Server()) as (_, address), connect(str(address)) as moor:
        assert await moor.echo(b"one") == b"one"
        bodies = [b"%d" % n for n in range(5_000)]
        answers = await moor.echo_all(bodies)
        assert [a.body for a in answers if isinstance(a, Echoed)] == bodies
        assert await moor.echo_all([]) == []


async def test_many_callers_share_one_connection() -> None:
    async with serving(Server()) as (_, address), connect(str(address)) as moor:
        bodies = [b"%d" % n for n in range(500)]
        assert await asyncio.gather(*(moor.echo(body) for body in bodies)) == bodies


async def test_a_message_too_large_fails_alone() -> None:
    async with serving(Server()) as (_, address), connect(str(address)) as moor:
        small = asyncio.create_task(moor.echo(b"small"))
        with pytest.raises(TooLarge):
            await moor.echo(bytes(FRAME_BYTES_MAX + 1))
        assert await small == b"small"


async def test_a_field_that_is_too_long_is_refused_by_name_before_it_is_sent() -> None:
    server = Server()
    async with serving(server) as (_, address), connect(str(address)) as moor:
        server.hold = True
        waiting = asyncio.create_task(moor.echo(b"small"))
        with pytest.raises(TooLarge, match=r"ListTopics\.after: expected `str` of length <= "):
            await moor.topics(after="x" * 2_000)
        with pytest.raises(TooLarge, match=r"Publish\.records: expected `array` of length <= "):
            await moor._caller.call(
                lambda call: Publish(call, [Record("t", b"")] * (RECORDS_PER_CALL_MAX + 1)),
                Published,
            )
        while not server.held:
            await asyncio.sleep(0)
        server.release()
        assert await waiting == b"small", "the link is as it was"


async def test_a_mistake_in_a_handler_fails_the_call_and_keeps_the_link() -> None:
    async with serving(Server()) as (_, address), connect(str(address)) as moor:
        with pytest.raises(CallFailed, match="INTERNAL"):
            await moor.echo(b"bug")
        assert await moor.echo(b"alive") == b"alive"


async def test_a_call_without_a_handler_is_unsupported() -> None:
    async with serving(Server()) as (_, address), connect(str(address)) as moor:
        with pytest.raises(CallFailed, match="no role that answers Describe"):
            await moor.describe()


async def test_too_many_calls_in_flight_stop_the_reading_and_nothing_is_lost() -> None:
    server = Server()
    async with serving(server) as (_, address), connect(str(address)) as moor:
        server.hold = True
        bodies = [b"x" * 200] * (2 * CALLS_IN_FLIGHT_MAX)
        calls = asyncio.create_task(moor.echo_all(bodies))
        (session,) = server.listeners.sessions
        while "calls in flight" not in session._holds:
            await asyncio.sleep(0)
        assert CALLS_IN_FLIGHT_MAX <= len(server.held) < 2 * CALLS_IN_FLIGHT_MAX
        server.release()
        assert len(await calls) == len(bodies)
        while session._holds:
            await asyncio.sleep(0)


async def test_whoever_is_held_waits_with_what_is_heard_already_and_goes_on_by_the_step() -> None:
    """One frame of many calls: a hold that only stops the reading would let all of them pass."""
    server, steps = Server(), list[int]()

    def echo(session: Session, calls: list[Echo]) -> list[Answer]:
        steps.append(len(calls))
        session.hold_work("others")
        return [Echoed(call.call, call.body) for call in calls]

    server.protocol.handlers[Echo] = echo
    async with serving(server) as (_, address), connect(str(address)) as moor:
        calls = asyncio.create_task(moor.echo_all([b"x"] * (3 * CALLS_PER_STEP)))
        while not steps:
            await asyncio.sleep(0)
        (session,) = server.listeners.sessions
        for done in (1, 2, 3):
            while len(steps) < done:
                await asyncio.sleep(0)
            for _ in range(20):  # turns in which more would be handled
                await asyncio.sleep(0)
            assert steps == [CALLS_PER_STEP] * done
            session.release_work("others")
        assert len(await calls) == 3 * CALLS_PER_STEP


async def test_calls_and_answers_beyond_all_buffers_do_not_stop_each_other() -> None:
    """Each end has more to say than the other and the kernel between them can hold."""
    async with serving(Server(keepalive_ms=10_000)) as (_, address), connect(str(address)) as moor:
        bodies = [bytes(100_000)] * 400
        answers = await moor.echo_all(bodies)
        assert [a.body for a in answers if isinstance(a, Echoed)] == bodies


@pytest.mark.slow
async def test_whoever_does_not_read_is_not_read_and_memory_stays_bounded() -> None:
    async with serving(Server(keepalive_ms=SHORT_KEEPALIVE_MS)) as (server, address):
        reader, writer = await raw(address)
        writer.write(bytes(frame([Hello(PROTOCOL, 1, 1)])))
        await reader.readexactly(LENGTH.size)
        writer.transport.set_write_buffer_limits(high=64 * 1_048_576)
        asks = bytes(frame([Echo(n, bytes(60_000)) for n in range(16)]))
        for _ in range(60):
            writer.write(asks)
        (session,) = server.listeners.sessions
        async with asyncio.timeout(10):
            while "slow reader" not in session._holds:
                await asyncio.sleep(0.001)
            async with connect(str(address)) as other:
                assert await other.echo(b"others are served") == b"others are served"
            # It reads nothing and answers no ping: in the end it is cut.
            await session.gone
        writer.transport.abort()


async def hello(address: Address, data: bytes) -> bytes:
    """What the node says to these bytes until it hangs up."""
    reader, writer = await raw(address)
    writer.write(data)
    async with asyncio.timeout(30):
        try:
            return await reader.read(-1)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", b"HELLO_TIMEOUT"),
        (bytes(frame([Hello(PROTOCOL, 1, 1)]))[:7], b"HELLO_TIMEOUT"),
        (b"GET / HTTP/1.1\r\n\r\n", b"FRAME_TOO_LARGE"),
        (LENGTH.pack(0xFFFFFFFF), b"FRAME_TOO_LARGE"),
        (LENGTH.pack(4) + b"\xc1\xc1\xc1\xc1", b"MALFORMED"),
        (bytes(frame([Echo(1, b"")])), b"MALFORMED"),
        (bytes(frame([Hello("other", 1, 1)])), b"MALFORMED"),
        (bytes(frame([Hello(PROTOCOL, 90, 91)])), b"VERSION"),
        (bytes(frame([Hello(PROTOCOL, 1, 1), Hello("other", 1, 1)])), b"MALFORMED"),
        (bytes(frame([Hello(PROTOCOL, 1, 1), Hello(PROTOCOL, 1, 1)])), b"MALFORMED"),
    ],
)
async def test_t51_hostile_hellos_are_closed_with_a_reason(data: bytes, code: bytes) -> None:
    """T51: slow hello, half hello, oversize frame, garbage: closed by the hello timeout."""
    async with serving(Server()) as (server, address), connect(str(address)) as moor:
        assert code in await hello(address, data)
        assert await moor.echo(b"served meanwhile") == b"served meanwhile"
        assert len(server.listeners.sessions) == 1


async def test_one_connection_too_many_is_told_that_the_node_is_busy() -> None:
    async with serving(Server(connections_max=1)) as (_, address), connect(str(address)) as first:
        with pytest.raises((Refused, ConnectionLost), match="BUSY"):
            async with connect(str(address), reconnect=False) as second:
                await second.echo(b"too many")
        assert await first.echo(b"inside") == b"inside"


async def test_a_stop_says_goodbye_and_fails_the_calls_in_flight() -> None:
    server = Server()
    async with serving(server) as (_, address):
        # One connection: a client that stays would ask the same again elsewhere.
        moor = await connect(str(address), reconnect=False)
        server.hold = True
        call = asyncio.create_task(moor.echo(b"in flight"))
        while not server.held:
            await asyncio.sleep(0)
    with pytest.raises(ConnectionLost, match=r"STOPPING.*may have been done or not"):
        await call
    with pytest.raises(ConnectionLost) as never_sent:
        await moor.echo(b"later")
    assert "may have been done" not in str(never_sent.value)


@pytest.mark.slow
async def test_silence_of_the_peer_is_noticed() -> None:
    async with serving(Server(keepalive_ms=SHORT_KEEPALIVE_MS)) as (server, address):
        reader, writer = await raw(address)
        writer.write(bytes(frame([Hello(PROTOCOL, 1, 1)])))
        async with asyncio.timeout(30):
            # A welcome, one ping that we do not answer, then the end.
            heard = b""
            with contextlib.suppress(ConnectionError):
                heard = await reader.read(-1)
        assert not server.listeners.sessions
        assert heard
        writer.close()


@pytest.mark.slow
async def test_a_live_but_idle_client_stays() -> None:
    server = Server(keepalive_ms=SHORT_KEEPALIVE_MS)
    async with serving(server) as (_, address), connect(str(address)) as moor:
        (session,) = server.listeners.sessions
        heard_ms = session._heard_ms
        async with asyncio.timeout(30):
            # Three answered pings are proof enough: each moves the time of the last word.
            for _ in range(3):
                while session._heard_ms == heard_ms:
                    await asyncio.sleep(0.01)
                heard_ms = session._heard_ms
        assert await moor.echo(b"still here") == b"still here"


async def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="is the node running"):
        await connect("tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="not the address of a node"):
        connect("udp://127.0.0.1:1")


async def test_a_server_that_never_answers_is_unreachable_in_bounded_time() -> None:
    silent = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises((Unreachable, Refused), match=r"no answer|HELLO_TIMEOUT"):
        await connect(f"tcp://127.0.0.1:{port}", timeout_ms=100)
    silent.close()


# --- TLS ------------------------------------------------------------------------------------------


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = trustme.CA()
        server = authority.issue_cert("127.0.0.1")
        client = authority.issue_cert("client@example.org", common_name="billing")
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        for name, cert in (("server", server), ("client", client)):
            cert.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))

    def context(self) -> ssl.SSLContext:
        server = str(self.folder / "server.pem")
        return server_context(server, server, str(self.ca))

    def connect(self, address: Address, *, proven: bool) -> Connecting:
        client = self.folder / "client.pem"
        return connect(
            str(address),
            ca=self.ca,
            certificate=client if proven else None,
            key=client if proven else None,
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def test_a_certificate_proves_who_the_client_is(certificates: Certificates) -> None:
    async with (
        serving(Server(anonymous="never"), certificates.context()) as (server, address),
        certificates.connect(address, proven=True) as moor,
    ):
        assert await moor.echo(b"x" * 100_000) == b"x" * 100_000
        (session,) = server.listeners.sessions
        assert session.identity.name == "billing"
        assert len(session.identity.fingerprint) == 32


async def test_without_a_certificate_nobody_enters_where_anonymous_is_never(
    certificates: Certificates,
) -> None:
    """A08: though the handshake lets it through."""
    async with serving(Server(anonymous="never"), certificates.context()) as (_, address):
        with pytest.raises((Refused, ConnectionLost), match="AUTH"):
            async with certificates.connect(address, proven=False) as moor:
                await moor.echo(b"let me in")


async def test_an_unknown_authority_is_refused_by_the_client(certificates: Certificates) -> None:
    async with serving(Server(), certificates.context()) as (_, address):
        with pytest.raises(Unreachable, match="TLS failed"):
            await connect(str(address))


async def test_a_plain_client_at_a_tls_port_is_closed(certificates: Certificates) -> None:
    """A08: before it is answered."""
    async with serving(Server(), certificates.context()) as (_, address):
        with pytest.raises(ConnectionLost):
            await connect(f"tcp://127.0.0.1:{address.port}", timeout_ms=2_000)


async def test_failed_handshakes_leave_no_session_behind(certificates: Certificates) -> None:
    async with serving(Server(connections_max=3), certificates.context()) as (server, address):
        for _ in range(10):
            with pytest.raises(ConnectionLost):
                await connect(f"tcp://127.0.0.1:{address.port}", timeout_ms=2_000)
        assert server.listeners.sessions == set()
        async with certificates.connect(address, proven=False) as moor:
            assert await moor.echo(b"room for me") == b"room for me"


class SlowReader:
    """A program that says hello and then nothing more: it reads a little at a time, until it hangs."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None) -> None:
        self.hangs = threading.Event()
        self.may_leave = threading.Event()
        self._address = address
        self._tls = tls

    def run(self) -> int:
        """How many bytes it read; 0 if it was cut before it hung."""
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            plain.settimeout(10)
            plain.connect((self._address.host, self._address.port))
            host = self._address.host
            stream = self._tls.wrap_socket(plain, server_hostname=host) if self._tls else plain
            with stream:
                stream.sendall(bytes(frame([Hello(PROTOCOL, 1, 1)])))
                count = 0
                try:
                    while not self.hangs.wait(0.01):  # its pace
                        data = stream.recv(4_096)
                        if not data:
                            return 0
                        count += len(data)
                except OSError:
                    return 0
                self.may_leave.wait(10)
                return count


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only coarser steps can be seen")
@pytest.mark.parametrize("is_tls", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_slow_reader_is_not_silent_and_one_that_hangs_is(
    certificates: Certificates, *, is_tls: bool
) -> None:
    """It answers no ping: its pongs would stand behind all that it has to read first."""
    server = Server(keepalive_ms=SHORT_KEEPALIVE_MS)
    async with serving(server, certificates.context() if is_tls else None) as (_, address):
        slow = SlowReader(address, client_context(certificates.ca, None, None) if is_tls else None)
        running = asyncio.create_task(asyncio.to_thread(slow.run))
        try:
            async with asyncio.timeout(20):
                while not any(session.is_open for session in server.listeners.sessions):
                    await asyncio.sleep(0.001)
                (session,) = server.listeners.sessions
                for _ in range(16):
                    session.push(Echoed(0, bytes(900_000)), 900_000)
                await asyncio.wait([session.gone], timeout=4 * SHORT_KEEPALIVE_MS / 1_000)
                assert session.is_open
                assert "slow reader" in session._holds
                slow.hangs.set()
                await session.gone
        finally:
            slow.hangs.set()
            slow.may_leave.set()
        assert await running > 0


class BadFile:
    """A file that is no certificate or key, by the way in which it is none."""

    def __init__(self, certificates: Certificates, kind: str) -> None:
        self.path = certificates.folder / kind
        if kind == "folder":
            self.path.mkdir(exist_ok=True)
        elif kind == "der":
            self.path.write_bytes(ssl.PEM_cert_to_DER_cert(certificates.ca.read_text()))
        elif kind == "mangled":
            self.path.write_text((certificates.folder / "server.pem").read_text().replace("M", "x"))


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("missing", "there is no such file: give the path of a PEM file"),
        ("folder", "this is a folder: give the path of a PEM file in it"),
        ("der", "it is not a PEM file: convert it"),
        ("mangled", "OpenSSL cannot use what is in there"),
    ],
)
def test_a_bad_certificate_file_is_named_and_says_what_to_do(
    certificates: Certificates, kind: str, advice: str
) -> None:
    bad = BadFile(certificates, kind).path
    good = certificates.folder / "server.pem"
    tries: dict[str, Callable[[], ssl.SSLContext]] = {
        "tls_certificate": lambda: server_context(str(bad), str(good), ""),
        "tls_client_ca": lambda: server_context(str(good), str(good), str(bad)),
        "ca": lambda: client_context(bad, None, None),
        "certificate": lambda: client_context(None, bad, good),
    }
    for setting, make in tries.items():
        with pytest.raises(ConfigError) as caught:
            make()
        assert f"{setting}: '{bad}'" in str(caught.value)
        assert advice in str(caught.value)


def test_a_bad_key_is_named_and_says_what_to_do(certificates: Certificates) -> None:
    good, other, ca = (
        certificates.folder / "server.pem",
        certificates.folder / "client.pem",
        certificates.ca,
    )
    for key, advice in (
        (certificates.folder / "none", "there is no such file"),
        (ca, "there is no private key in it"),
        (other, "they do not belong together"),
    ):
        with pytest.raises(ConfigError) as caught:
            server_context(str(good), str(key), "")
        assert f"tls_key: '{key}': {advice}" in str(caught.value)
        with pytest.raises(ConfigError) as caught:
            client_context(None, good, key)
        assert f"key: '{key}': {advice}" in str(caught.value)
    with pytest.raises(ConfigError, match="without a certificate"):
        client_context(None, None, good)


def test_a_key_with_a_passphrase_is_refused_and_asks_nobody(certificates: Certificates) -> None:
    good, locked = certificates.folder / "server.pem", certificates.folder / "locked.pem"
    key = serialization.load_pem_private_key(good.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match=r"tls_key: .*needs a passphrase"):
        server_context(str(good), str(locked), "")


async def test_a_client_with_a_bad_authority_fails_before_it_connects(
    certificates: Certificates,
) -> None:
    with pytest.raises(ConfigError, match=r"ca: .*there is no such file"):
        await connect("tls://127.0.0.1:1", ca=certificates.folder / "none")


async def test_an_unknown_code_from_a_newer_node_is_still_an_error() -> None:
    assert "NEW_CODE: because" in str(CallFailed.of("NEW_CODE", "because"))
    assert isinstance(CallFailed.of("TOO_LARGE", "x"), TooLarge)
    assert Failed(1, "A", "b").call == 1
