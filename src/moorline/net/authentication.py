"""Room: net. Who proves what: the interfaces of authenticators and credentials, and what an address demands.

    Authenticator    the node's: begins an exchange for each link that gives a proof
    Credentials      the client's: the first proof, and answers to challenges
    Authentication   of one address: the mechanisms that are taken there, and who checks them

The machines of a link (core.link) keep order, rounds and time; nothing here has to.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, Protocol, runtime_checkable

import msgspec

from moorline.core.access.certificate import PeerCertificate
from moorline.core.proof import (
    MakeProof,
    ProofAccepted,
    ProofContinues,
    ProofFailed,
    ProofMade,
    ProofRefused,
)
from moorline.errors import ConfigError
from moorline.limits import MECHANISM_LENGTH_MAX, PROOF_BYTES_MAX, PROOF_CHECKS_AT_ONCE_MAX
from moorline.net.records import Wrapping

log = logging.getLogger("moorline.net")

BY_CERTIFICATE: Final = "certificate"
BY_NOTHING: Final = "anonymous"
BY_TRANSPORT: Final = (BY_CERTIFICATE, BY_NOTHING)
"""What a client is judged by that names no mechanism: its TLS certificate, or that it has none. An address
takes these by the same rule as proofs, if it names them; they are not for a hello."""

Verdict = ProofAccepted | ProofContinues | ProofRefused


class Peer(msgspec.Struct, frozen=True):
    """The other end, as its transport shows it."""

    address: str
    is_encrypted: bool
    """Whether nobody between can read what it says: a password does not belong elsewhere."""
    certificate: PeerCertificate | None = None


class Exchange(Protocol):
    """The proofs of one link, one after the other; never two at a time."""

    @property
    def claimed(self) -> str:
        """Whom the peer says to be, proven or not, for whoever writes that down; empty while nobody knows."""

    async def check(self, proof: bytes, /) -> Verdict:
        """May take its time, or a thread, and must come to an end by itself: the link does not wait for it
        for ever, but its place among the checks of the node is free only then."""


class Authenticator(Protocol):
    """Knows who may be whom. Asked only for mechanisms that the address names."""

    def begin(self, mechanism: str, peer: Peer, /) -> Exchange: ...


class Credentials(Protocol):
    """What a client proves itself with: one object for each connection that is opened."""

    @property
    def mechanism(self) -> str: ...

    @property
    def is_content(self) -> bool:
        """Whether a welcome may come now: no while the node has yet to prove itself, by a mechanism that
        asks it to."""

    async def first(self) -> bytes:
        """The proof that goes with the hello."""

    async def answer(self, challenge: bytes, /) -> bytes:
        """The answer to a challenge; raises if it is not one of the node that is meant."""


@runtime_checkable
class Wraps(Protocol):
    """An exchange, or credentials, by which the link comes to be wrapped."""

    def has_keys(self) -> bool:
        """Whether what is said next is wrapped."""

    def wrapping(self) -> Wrapping: ...


class Authentication(msgspec.Struct, frozen=True):
    """What is demanded at one address: whoever proves itself by one of `mechanisms` comes in, nobody else."""

    mechanisms: tuple[str, ...] = BY_TRANSPORT
    authenticator: Authenticator | None = None

    def __post_init__(self) -> None:
        assert self.mechanisms, "an address that takes nobody"
        assert not self.proofs or self.authenticator is not None, f"nobody checks {self.proofs}"

    @property
    def proofs(self) -> tuple[str, ...]:
        """Those that a hello may name."""
        return tuple(name for name in self.mechanisms if name not in BY_TRANSPORT)

    def refusal_of(self, *, has_certificate: bool) -> ProofRefused | None:
        """Why somebody that names no mechanism is not taken here; None if it may be."""
        if (BY_CERTIFICATE if has_certificate else BY_NOTHING) in self.mechanisms:
            return None
        return ProofRefused(f"prove who you are: this address takes {', '.join(self.mechanisms)}")


class Checks:
    """The checks of a node that are under way, as many as it has places for."""

    def __init__(self, at_once_max: int = PROOF_CHECKS_AT_ONCE_MAX) -> None:
        self._places = asyncio.Semaphore(at_once_max)
        self._running: set[asyncio.Task[Verdict]] = set()

    async def verdict(self, exchange: Exchange, proof: bytes) -> Verdict:
        """Waits for a place. Whoever waits no longer has the place until the check itself is over: a thread
        cannot be taken back."""
        await self._places.acquire()
        task = asyncio.ensure_future(_checked(exchange, proof))
        self._running.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: "asyncio.Task[Verdict]") -> None:
        self._running.discard(task)
        self._places.release()


class Proofs:
    """What one link proves, from its hello on."""

    def __init__(self, authentication: Authentication, checks: Checks) -> None:
        self._authentication = authentication
        self._checks = checks
        self._exchange: Exchange | None = None

    @property
    def claimed(self) -> str:
        return self._exchange.claimed if self._exchange is not None else ""

    def wrapping(self) -> Wrapping:
        assert isinstance(self._exchange, Wraps), "a mechanism that has no keys"
        return self._exchange.wrapping()

    def check(self, mechanism: str, proof: bytes, peer: Peer) -> Awaitable[Verdict]:
        if self._exchange is None:
            assert mechanism in self._authentication.proofs, f"{mechanism} is not taken here"
            assert self._authentication.authenticator is not None
            self._exchange = self._authentication.authenticator.begin(mechanism, peer)
        return self._checks.verdict(self._exchange, proof)


async def _checked(exchange: Exchange, proof: bytes) -> Verdict:
    try:
        verdict = await exchange.check(proof)
        if isinstance(verdict, ProofContinues) and len(verdict.challenge) > PROOF_BYTES_MAX:
            raise ValueError(f"a challenge of {len(verdict.challenge)} bytes")
    except Exception:
        # Who cannot be judged does not come in. Nothing of the error is told: it may say what there is.
        log.exception("a proof could not be checked")
        return ProofRefused("the proof cannot be checked now: try again later")
    return verdict


def checked_mechanism(credentials: Credentials | None) -> str:
    """The mechanism of these credentials, empty where there are none; `ConfigError` if it has no name."""
    if credentials is None:
        return ""
    name = credentials.mechanism
    if not 0 < len(name) <= MECHANISM_LENGTH_MAX or name in BY_TRANSPORT:
        raise ConfigError(
            f"credentials: {name!r} names no mechanism: give a name of 1 to {MECHANISM_LENGTH_MAX} characters"
        )
    return name


async def made_proof(
    credentials: Credentials, make: MakeProof, *, is_wrapped: bool = False
) -> ProofMade | ProofFailed:
    """What a client answers; a failure of its credentials is told to whoever connects, not to the node."""
    try:
        if make.challenge is None:
            proof = await credentials.first()
        else:
            proof = await credentials.answer(make.challenge)
    except Exception as error:
        return ProofFailed(f"no proof by {credentials.mechanism}: {error}")
    if len(proof) > PROOF_BYTES_MAX:
        return ProofFailed(
            f"a proof by {credentials.mechanism} of {len(proof)} bytes: at most {PROOF_BYTES_MAX} are taken"
        )
    has_keys = isinstance(credentials, Wraps) and credentials.has_keys()
    return ProofMade(proof, credentials.is_content, has_keys and not is_wrapped)
