"""Room: net/http. Who is asking: one login of one connection, with its rights, its place and its end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from moorline.core.access.certificate import PeerCertificate
from moorline.core.access.principal import Proof
from moorline.net.clock import wall_ms
from moorline.net.session_rights import SessionAllowance, SessionRights
from moorline.net.tls import ANONYMOUS, Identity

if TYPE_CHECKING:
    from moorline.net.http.logins import Brought


class Prove(Protocol):
    """Checks a proof for a peer that is there, and lets it in: `net.http.logins.Logins.prove`."""

    def __call__(self, peer: "Peer", brought: "Brought", /) -> Awaitable[bytes]:
        """Empty once it is in; else what it must answer first."""


class Peer:
    """As the rooms see it that judge and count: the same as a native session shows of itself.

    A login lasts as long as its connection, unless its proof ends before. Its place is counted once,
    and it is in the audit once, however many requests come by it.
    """

    # A client of MQTT is one, and there are tens of thousands of those.
    __slots__ = (
        "_expiry",
        "_hooks",
        "_prove",
        "allowance",
        "certificate",
        "cut",
        "end_code",
        "end_text",
        "identity",
        "is_encrypted",
        "is_ended_here",
        "is_entered",
        "is_forwarded",
        "is_local",
        "is_open",
        "listener",
        "origin",
        "peer_address",
        "rights",
    )

    rights: SessionRights
    """Known once it has entered."""

    def __init__(self, address: str, listener: str, prove: Prove) -> None:
        self.peer_address = address
        self.listener = listener
        self.allowance: SessionAllowance | None = None
        self.identity: Identity = ANONYMOUS
        self.certificate: PeerCertificate | None = None
        """What its TLS handshake showed."""
        self.is_encrypted = False
        self.is_local = False
        """Whether it is on this machine, and neither a page nor a proxy."""
        self.is_forwarded = False
        self.origin = ""
        """That by which a request called the node."""
        self.is_entered = False
        """Whether it is somebody, or anonymous where that is let in: only then it has rights."""
        self.is_open = True
        self.end_code = ""
        self.end_text = ""
        self.is_ended_here = True
        """A client of HTTP says no code of its own."""
        self.cut: Callable[[str, str], None] = lambda _code, _text: None
        """Ends what it came by; whoever serves it replaces this."""
        self._prove = prove
        self._hooks: list[Callable[[], None]] = []
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def principal(self) -> str:
        return self.identity.principal

    @property
    def has_proven(self) -> bool:
        return self.identity.proof is not Proof.NOTHING

    async def authenticate(
        self, *, token: str = "", user: str = "", password: str = "", passed: str = ""
    ) -> None:
        """A proof that comes in a message; `passed` is a pass. `NotAuthorized` or `OverQuota` say why it is
        not taken; who has proven something stays that one, and is refused."""
        from moorline.net.http.logins import PASS, Brought

        brought = (
            Brought(PASS, passed.encode())
            if passed
            else Brought.of(token=token, user=user, password=password)
        )
        challenge = await self._prove(self, brought)
        assert not challenge, "of these proofs none asks back"

    async def login_by_issuer(self, said: bytes) -> bytes:
        """What a page brings from an issuer, with the same refusals: then it has entered, and this is empty.
        Without anything, what the page needs to go there."""
        from moorline.net.http.logins import Brought

        return await self._prove(self, Brought(Proof.OIDC.value, said))

    def at_end(self, hook: Callable[[], None]) -> None:
        """Calls it when this login ends; at once if it is over."""
        if self.is_open:
            self._hooks.append(hook)
        else:
            hook()

    def close(self, code: str, text: str) -> None:
        """Ends the login, and what it came by hears why."""
        if not self.is_open:
            return
        self.end(code, text)
        self.cut(code, text)

    def end(self, code: str, text: str = "") -> None:
        """It is over, by whatever cause; what it held is given back."""
        if not self.is_open:
            return
        self.is_open = False
        self.end_code, self.end_text = code, text
        self._leave()

    def become(self, identity: Identity) -> None:
        """Before it enters, or instead of anonymous: what was held as that one is given back."""
        assert self.is_open
        assert not self.has_proven, "who has proven something stays that one"
        self._leave()
        self.identity = identity
        if identity.expires_ms is not None:
            left_s = max(0, identity.expires_ms - wall_ms()) / 1_000
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(left_s, self._expired)

    def _expired(self) -> None:
        self.close("EXPIRED", "the proof of who you are has ended: connect again with another")

    def _leave(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.is_entered = False
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook()
        # Behind them: what they held is given back to it.
        self.allowance = None
