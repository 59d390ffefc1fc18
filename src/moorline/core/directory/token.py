"""Room: core/directory. Tokens: how a subscriber proves to a publisher what a resolver has granted it.

    token = HMAC-SHA-512(secret, "moorline token 2" ‖ resolver ‖ instance ‖ expiry ‖ end of the proof
                                 ‖ locality ‖ permissions
                                 ‖ length principal ‖ length proof ‖ length mark ‖ length path)

The secret is of one login of one publisher at one resolver, so that a token is of no use at another
publisher, or behind the next login. Every part of variable length has its length before it, and all others
have one length: no two claims are the same bytes. The holder is a part of it: what one subscriber was given,
another cannot use, where the publisher knows who is there. The mark says by which password or token the
holder was proven, to resolvers alone: behind a change of that they judge otherwise.
"""

import hashlib
import hmac
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

TOKEN_BYTES: Final = 64

_LABEL = b"moorline token 2"
_ADDRESS_LABEL = b"moorline address 1"
_QUESTION_BYTES = 16 + 16 + 32
_FIXED = Struct(">16s16sQQBB")
_LENGTH = Struct(">I")
_BLOCK_BYTES = 128
"""Of SHA-512."""
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
"""The keys of both hashes, by the bytes of the secret."""


class Claim(msgspec.Struct, frozen=True):
    """What a subscriber says it was granted, and by whom."""

    resolver: bytes
    instance: bytes
    principal: str
    proof: str
    is_local: bool
    expires_s: int
    path: str
    permissions: int
    ends_s: int = 0
    """When the proof of the holder ends; 0 where it does not by itself."""
    mark: bytes = b""


class Signer:
    """Makes the tokens of one holder for one publisher: most of what is signed is the same for each path.

    HMAC is two hashes, H(outer key ‖ H(inner key ‖ said)) (RFC 2104). What both begin with is hashed once
    here and copied for each path, which is a third of the work of `hmac.digest`; a test compares the two.
    """

    __slots__ = ("_head", "_inner", "_outer", "_tail", "_with")

    def __init__(self, secret: bytes, claim: Claim) -> None:
        """Path and permissions of the claim are of no matter here."""
        assert len(secret) <= _BLOCK_BYTES, "a longer key is hashed first"
        key = secret.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha512(key.translate(_INNER))
        self._outer = hashlib.sha512(key.translate(_OUTER))
        self._with: dict[int, Callable[[str], bytes]] = {}
        """What is left to do for a path, by the permissions that are signed before it."""
        self._head = _LABEL
        fixed = _FIXED.pack(
            claim.resolver, claim.instance, claim.expires_s, claim.ends_s, claim.is_local, 0
        )
        # The byte of the permissions is the last of the fixed ones.
        self._head += fixed[:-1]
        self._tail = _sized(claim.principal) + _sized(claim.proof) + _framed(claim.mark)

    def token(self, path: str, permissions: int) -> bytes:
        return self.signing(permissions)(path)

    def signing(self, permissions: int) -> Callable[[str], bytes]:
        """What makes the tokens of paths with these permissions."""
        known = self._with.get(permissions)
        if known is None:
            begun = self._inner.copy()
            begun.update(self._head + bytes((permissions,)) + self._tail)
            known = self._with[permissions] = _signing(begun.copy, self._outer.copy)
        return known


def _signing(begin: "Callable[[], Hash]", end: "Callable[[], Hash]") -> Callable[[str], bytes]:
    """Copies of both hashes, the inner one up to the path. All that a path takes is a local name here."""
    length = _LENGTH.pack

    def sign(path: str) -> bytes:
        said = path.encode()
        inner, outer = begin(), end()
        inner.update(length(len(said)) + said)
        outer.update(inner.digest())
        return outer.digest()

    return sign


class TokenJudge:
    """A publisher's verdicts on the tokens of one call: one holder, one resolver, one expiry.

    The order is the design's: what the token proves first, and its time then. `secret` is None where no login
    at that resolver is known: such tokens are compared too, so that the time of an answer does not tell which
    resolvers are known.
    """

    def __init__(self, secret: bytes | None, claim: Claim, now_s: int, life_s: int) -> None:
        """Path and permissions of the claim are of no matter here."""
        self._signer = Signer(secret if secret is not None else bytes(32), claim)
        self._is_known = secret is not None
        self._untimely = ""
        if claim.expires_s <= now_s:
            self._untimely = "the token has expired: resolve again"
        elif claim.ends_s and claim.ends_s <= now_s:
            self._untimely = "the proof of its holder has ended: prove yourself again, and resolve"
        elif claim.expires_s > now_s + life_s:
            # Clocks differ; one that is ahead by more than a life would make tokens that never end.
            self._untimely = "the token is from the future: is a clock wrong?"

    def why_not(self, path: str, permissions: int, token: bytes) -> str:
        """Why it is not taken; empty if it is."""
        is_equal = hmac.compare_digest(self._signer.token(path, permissions), token)
        if not is_equal or not self._is_known:
            return "the token is not of a resolver that this publisher knows, or was altered"
        return self._untimely


class AddressQuestion(NamedTuple):
    """What a resolver says in the hello of its dial: who it is, which login is meant, and its chance.

    `login` tells several logins of one publisher apart, and nothing of their keys.
    """

    resolver: bytes
    login: bytes
    nonce: bytes

    @staticmethod
    def of(resolver: bytes, key: bytes, nonce: bytes) -> "AddressQuestion":
        return AddressQuestion(resolver, login_of(key), nonce)

    def __bytes__(self) -> bytes:
        return self.resolver + self.login + self.nonce

    @staticmethod
    def parse(said: bytes) -> "AddressQuestion | None":
        """None if it is none."""
        if len(said) != _QUESTION_BYTES:
            return None
        return AddressQuestion(said[:16], said[16:32], said[32:])


def login_of(key: bytes) -> bytes:
    """A name for the login of that key, which does not tell the key."""
    return hashlib.sha256(b"moorline login 1" + key).digest()[:16]


def address_proof(key: bytes, question: AddressQuestion) -> bytes:
    """What a publisher answers to a resolver that dials the address which it has claimed."""
    return hmac.digest(key, _ADDRESS_LABEL + bytes(question), "sha512")


def _sized(text: str) -> bytes:
    return _framed(text.encode())


def _framed(said: bytes) -> bytes:
    return _LENGTH.pack(len(said)) + said
