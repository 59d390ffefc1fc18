"""A node that takes passwords and tokens as any client shows them; it echoes, and says whom it took in."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from moorline.config.addresses import Address
from moorline.core.proof import ProofAccepted, ProofRefused
from moorline.net.authentication import Authentication, Exchange, Peer, Verdict
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.net.session import Session
from moorline.wire.access import Identified, WhoAmI
from moorline.wire.link import Welcome
from moorline.wire.message import Answer
from moorline.wire.node import Echo, Echoed

PASSWORD = "correct horse battery staple"
TOKEN = "moor_" + "t0ken" * 8
WRONG = "the name or the password is wrong"
PROOFS = {b"alice\0" + PASSWORD.encode(): "alice", TOKEN.encode(): "spark"}


class ProvingNode:
    """Whom it took in, by name, in the order in which they came."""

    claimed = ""

    def __init__(self, *mechanisms: str) -> None:
        self.entered: list[str] = []
        self._listeners = Listeners(Admission("loopback", 100, 10_000, 600_000))
        self._authentication = Authentication(mechanisms, self)
        self._protocol = NativeProtocol({Echo: self._echo, WhoAmI: self._who}, _welcome)

    def begin(self, mechanism: str, peer: Peer, /) -> Exchange:  # noqa: ARG002
        return self

    async def check(self, proof: bytes, /) -> Verdict:
        found = PROOFS.get(proof)
        return ProofRefused(WRONG) if found is None else ProofAccepted(found, None)

    def _echo(self, session: Session, calls: list[Echo]) -> list[Answer]:
        self.entered.append(session.identity.name)
        return [Echoed(call.call, call.body) for call in calls]

    def _who(self, session: Session, calls: list[WhoAmI]) -> list[Answer]:
        name = session.identity.name
        return [Identified(call.call, name, "password", ("@everyone",), ()) for call in calls]

    @contextlib.asynccontextmanager
    async def open(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        wanted = Address("tls" if tls else "tcp", "127.0.0.1", 0)
        (address,) = await self._listeners.open(wanted, tls, self._protocol, self._authentication)
        try:
            yield str(address)
        finally:
            await self._listeners.close()


def _welcome(version: int, keepalive_ms: int) -> Welcome:
    return Welcome(version, "n", keepalive_ms=keepalive_ms)


def secret_file(path: Path, secret: str) -> Path:
    """A file as an operator makes it: one line, for its owner."""
    path.write_text(secret + "\n")
    path.chmod(0o600)
    return path
