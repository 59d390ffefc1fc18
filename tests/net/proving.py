"""A node that takes proofs, an authenticator and credentials of the tests' own, a client without manners."""

import asyncio
import contextlib
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator

from moorline.config.addresses import Address
from moorline.core.proof import ProofAccepted, ProofContinues, ProofRefused
from moorline.limits import PROOF_FRAME_BYTES_MAX
from moorline.net.authentication import (
    Authentication,
    Credentials,
    Exchange,
    Peer,
    Verdict,
)
from moorline.net.caller import Caller, open_caller
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.frame import Splitter, frame
from moorline.wire.link import PROTOCOL, Hello, Welcome
from moorline.wire.message import Answer, Message
from moorline.wire.node import Echo, Echoed
from moorline.wire.protocol import client_decoder

PASSWORDS = {"olga": b"swordfish", "ivan": b"x" * 60_000}
NONCE = b"a nonce of the node"


class Passwords:
    """The test's authenticator: `password` in one step, `node` by an HMAC over a nonce, both ways."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Peer]] = []
        self.checked: list[bytes] = []
        self.at_once = self.at_once_max = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.expires_ms: int | None = None
        self.rounds = 1

    def begin(self, mechanism: str, peer: Peer) -> Exchange:
        self.begun.append((mechanism, peer))
        return _Exchange(self, mechanism)

    def verdict(self, name: str, proof: bytes, expected: bytes) -> Verdict:
        if not hmac.compare_digest(proof, expected):
            return ProofRefused("the proof is wrong")
        return ProofAccepted(name, self.expires_ms)


class _Exchange:
    def __init__(self, passwords: Passwords, mechanism: str) -> None:
        self._passwords = passwords
        self._mechanism = mechanism
        self._name = ""
        self.claimed = ""
        self._round = 0

    async def check(self, proof: bytes) -> Verdict:
        known = self._passwords
        known.checked.append(proof)
        known.at_once += 1
        known.at_once_max = max(known.at_once, known.at_once_max)
        try:
            await known.may_answer.wait()
            if proof == b"bug":
                raise RuntimeError("the file /etc/passwords is not there")
            return self._checked(proof)
        finally:
            known.at_once -= 1

    def _checked(self, proof: bytes) -> Verdict:
        known = self._passwords
        if self._mechanism == "password":
            name, _, password = proof.decode(errors="replace").partition(":")
            return known.verdict(name, password.encode(), PASSWORDS.get(name, b"\0"))
        self._round += 1
        if self._round <= known.rounds:
            self._name = self._name or proof.decode()
            return ProofContinues(NONCE)
        expected = signed(PASSWORDS.get(self._name, b"\0"), NONCE)
        return known.verdict(self._name, proof, expected)


def signed(password: bytes, nonce: bytes) -> bytes:
    return hmac.digest(password, nonce, hashlib.sha256)


class Password:
    mechanism = "password"
    is_content = True

    def __init__(self, name: str, password: bytes) -> None:
        self._proof = name.encode() + b":" + password

    async def first(self) -> bytes:
        return self._proof

    async def answer(self, challenge: bytes) -> bytes:
        raise ValueError(f"no challenge is expected, of {len(challenge)} bytes")


class Signature:
    """Content only when it has been asked by a node that knows the nonce."""

    mechanism = "node"

    def __init__(self, name: str, password: bytes) -> None:
        self.is_content = False
        self._name = name
        self._password = password

    async def first(self) -> bytes:
        await asyncio.sleep(0)
        return self._name.encode()

    async def answer(self, challenge: bytes) -> bytes:
        await asyncio.sleep(0)
        if challenge != NONCE:
            raise ValueError("this is not the node that is meant")
        self.is_content = True
        return signed(self._password, challenge)


class Server:
    def __init__(self, *mechanisms: str, hello_timeout_ms: int = 60_000) -> None:
        self.passwords = Passwords()
        self.echoed: list[bytes] = []
        self.listeners = Listeners(Admission("everywhere", 100, hello_timeout_ms, 600_000))
        self._authentication = Authentication(mechanisms, self.passwords)
        self._protocol = NativeProtocol(
            {Echo: self._echo},
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
        )

    def _echo(self, session: Session, calls: list[Echo]) -> list[Answer]:  # noqa: ARG002
        self.echoed += [call.body for call in calls]
        return [Echoed(call.call, call.body) for call in calls]

    async def open(self, tls: ssl.SSLContext | None = None) -> Address:
        wanted = Address("tls" if tls else "tcp", "127.0.0.1", 0)
        (address,) = await self.listeners.open(wanted, tls, self._protocol, self._authentication)
        return address

    @property
    def names(self) -> list[str]:
        return [session.identity.name for session in self.listeners.sessions]


@contextlib.asynccontextmanager
async def serving(
    server: Server, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Server, Address]]:
    address = await server.open(tls)
    try:
        yield server, address
    finally:
        server.passwords.may_answer.set()
        await server.listeners.close()


async def entered(address: Address, credentials: Credentials | None = None) -> Caller:
    return await open_caller(
        address,
        lambda: Caller(
            "test", hello_timeout_ms=30_000, keepalive_ms=600_000, credentials=credentials
        ),
        timeout_ms=30_000,
    )


async def echo(caller: Caller, body: bytes) -> bytes:
    return (await caller.call(lambda call: Echo(call, body), Echoed)).body


class Raw:
    """A client that says what it likes, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = Splitter(PROOF_FRAME_BYTES_MAX)
        self._heard: list[Message] = []

    @classmethod
    async def to(cls, address: Address) -> "Raw":
        return cls(*await asyncio.open_connection(address.host, address.port))

    def say(self, *messages: Message) -> "Raw":
        self._writer.write(bytes(frame(messages)))
        return self

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self) -> Message | None:
        """The next message; None behind the last."""
        async with asyncio.timeout(30):
            while not self._heard:
                data = await self._reader.read(1 << 16)
                if not data:
                    return None
                for payload in self._splitter.feed(data):
                    self._heard += client_decoder.decode(payload)
        return self._heard.pop(0)

    def close(self) -> None:
        self._writer.close()


def hello(mechanism: str = "", proof: bytes = b"") -> Hello:
    return Hello(PROTOCOL, 1, 1, "raw", mechanism, proof)
