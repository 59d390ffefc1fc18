"""Room: core/access. How two nodes of a cluster prove to each other that both know its secret.

    caller                                                     acceptor
    ──  its home, the acceptor's, 32 random bytes  ──────────►
    ◄──  32 random bytes, HMAC("acceptor", all of these)  ────
    ──  HMAC("caller", all of these)  ───────────────────────►

Both ends put in chance of their own, so that nothing that was heard before proves anything. Both homes are
under the HMAC: what one node said to another cannot be passed on to a third. The two proofs have different
labels: what the acceptor says can never be sent back to it as the caller's. The caller is silent until the
acceptor has proven itself; so one that only looks like a node learns nothing.

It proves who is at the ends, and protects nothing that is said later: that is what TLS and Kerberos are for.
"""

import hashlib
import hmac

import msgspec

from moorline.core.hidden_bytes import without_bytes
from moorline.limits import CREDENTIAL_BYTES_MAX, NONCE_BYTES

AS_NODE = b"node\0"
"""What goes before the caller's first words where they follow another proof in the same link, Kerberos."""

# With a version in them: a later form of the proof can never be taken for this one.
_ACCEPTOR = b"moorline node 1 acceptor"
_CALLER = b"moorline node 1 caller"


class ClusterSecrets(msgspec.Struct, frozen=True):
    """What nodes of a cluster prove with. Behind a renewal the one before is taken for a while beside it."""

    current: bytes
    before: bytes = b""
    """Empty where it is not taken any more, and where there was none."""
    before_left_ms: int = 0

    def taken(self) -> tuple[bytes, ...]:
        """Those that prove a node; the first is what a node proves itself by that is called. That is the one
        before while it is taken: a caller that has yet to hear of the new one knows no other."""
        return (self.before, self.current) if self.before else (self.current,)

    def marks(self) -> frozenset[bytes]:
        """What tells by which of them something was proven, and nobody what they are."""
        return frozenset(map(mark_of, self.taken()))

    __repr__ = without_bytes


def mark_of(secret: bytes) -> bytes:
    return hashlib.sha256(b"moorline cluster secret " + secret).digest()


class NodeCall(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the caller begins with."""

    caller: str
    acceptor: str
    nonce: bytes


class NodeChallenge(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the acceptor says: its chance, and its own proof."""

    nonce: bytes
    proof: bytes


_call_decoder = msgspec.msgpack.Decoder(NodeCall)
_challenge_decoder = msgspec.msgpack.Decoder(NodeChallenge)


def encoded(message: NodeCall | NodeChallenge) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_call(proof: bytes) -> NodeCall | None:
    """None if it is none."""
    try:
        found = _call_decoder.decode(proof) if len(proof) <= CREDENTIAL_BYTES_MAX else None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
    # A short one is refused: whoever chooses an empty nonce leaves the chance to the other end.
    return found if found is not None and len(found.nonce) == NONCE_BYTES else None


def decode_challenge(challenge: bytes) -> NodeChallenge | None:
    """None if it is none."""
    try:
        found = (
            _challenge_decoder.decode(challenge) if len(challenge) <= CREDENTIAL_BYTES_MAX else None
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return None
    return found if found is not None and len(found.nonce) == NONCE_BYTES else None


def acceptor_proof(secret: bytes, call: NodeCall, nonce: bytes) -> bytes:
    return _proof(secret, _ACCEPTOR, call, nonce)


def caller_proof(secret: bytes, call: NodeCall, nonce: bytes) -> bytes:
    return _proof(secret, _CALLER, call, nonce)


def is_same(proof: bytes, wanted: bytes) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(proof, wanted)


def _proof(secret: bytes, label: bytes, call: NodeCall, nonce: bytes) -> bytes:
    assert secret, "an empty secret is known to everybody"
    # Each part with its length: no two sets of parts are the same bytes.
    parts = (label, call.caller.encode(), call.acceptor.encode(), call.nonce, nonce)
    said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, said, hashlib.sha256)
