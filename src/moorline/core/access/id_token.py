"""Room: core/access. ID tokens of OpenID Connect, but for the arithmetic: which key, and which claims.

    token = IdToken.parsed(text)                  three parts, a head, claims; nothing is believed yet
    key = token.key_of(keys)                      the one of the issuer's that it names
    …signature…                                   access/signatures.py
    token.check(expected, now_s)                  issuer, audience, nonce, times

The algorithms are those of `ALGORITHMS` and no other. Each goes with one kind of key: a key decides which
algorithms it takes, so that no token chooses one that its key is not for. None of them has a shared secret,
so a public key is never one; `none` is none of them. What a head says of keys of its own (`jwk`, `jku`,
`x5c`, `x5u`) is not looked at.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from moorline.limits import OIDC_ANSWER_BYTES_MAX, OIDC_CLOCK_SKEW_S

ALGORITHMS: Final = {
    "RS256": ("RSA", ""),
    "RS384": ("RSA", ""),
    "RS512": ("RSA", ""),
    "PS256": ("RSA", ""),
    "PS384": ("RSA", ""),
    "PS512": ("RSA", ""),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
"""What is taken, each with the kind of key and the curve that it is for (RFC 7518, RFC 8037, RFC 9864)."""

BY_DEFAULT: Final = ("RS256", "PS256", "ES256", "EdDSA")

_TYPES: Final = frozenset({"", "jwt", "application/jwt"})
"""Other types of tokens are for other purposes: an access token, or one that ends a session."""


class BadToken(ValueError):
    """A token that proves nothing; the text says why, for the log and the audit."""


class Key(msgspec.Struct, frozen=True):
    """A public key as an issuer publishes it (RFC 7517). What else it says is not looked at."""

    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    key_ops: list[str] | None = None
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""

    def takes(self, algorithm: str) -> bool:
        kind, curve = ALGORITHMS[algorithm]
        return (
            self.kty == kind
            and (not curve or self.crv == curve)
            and self.use in (None, "sig")
            and self.alg in (None, algorithm)
            and (self.key_ops is None or "verify" in self.key_ops)
        )


class Keys(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]

    def usable(self) -> list[Key]:
        """One that cannot be read is left out: an issuer may have new kinds beside those that we know."""
        found = []
        for raw in self.keys:
            try:
                found.append(msgspec.convert(raw, Key))
            except msgspec.ValidationError:
                continue
        return found


class Expected(msgspec.Struct, frozen=True):
    """Of the token of one login."""

    issuer: str
    client_id: str
    nonce: str


class _Head(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    typ: str = ""
    crit: list[str] | None = None


class IdToken(msgspec.Struct, frozen=True):
    algorithm: str
    kid: str | None
    claims: dict[str, Any]
    signed: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"IdToken({self.algorithm})"

    @classmethod
    def parsed(cls, text: str, algorithms: Sequence[str]) -> "IdToken":
        if len(text) > OIDC_ANSWER_BYTES_MAX or not text.isascii():
            raise BadToken("it is no token")
        parts = text.split(".")
        if len(parts) != 3:
            raise BadToken("it does not have three parts")
        try:
            head = msgspec.json.decode(decoded(parts[0]), type=_Head)
            claims = msgspec.json.decode(decoded(parts[1]), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadToken("its head or its claims cannot be read") from None
        if head.alg not in algorithms or head.alg not in ALGORITHMS:
            raise BadToken(f"its algorithm is {head.alg[:20]!r}, which is not taken")
        if head.crit is not None:
            raise BadToken("it asks for an extension that nobody knows here")
        if head.typ.lower() not in _TYPES:
            raise BadToken("it is a token of another type")
        signed = f"{parts[0]}.{parts[1]}".encode()
        return cls(head.alg, head.kid, claims, signed, decoded(parts[2]))

    def key_of(self, keys: Sequence[Key]) -> Key | None:
        """None where the issuer has none of that name: it may have a new one. Without a name there must be
        one alone that it can be."""
        fitting = [key for key in keys if key.takes(self.algorithm)]
        if self.kid is not None:
            fitting = [key for key in fitting if key.kid == self.kid]
        if len(fitting) > 1:
            raise BadToken("several keys of the issuer could be its key")
        return fitting[0] if fitting else None

    def check(self, expected: Expected, now_s: float) -> float:
        """Until when it is good; `BadToken` says what is wrong. Only behind its signature."""
        claims = self.claims
        if claims.get("iss") != expected.issuer:
            raise BadToken("it is of another issuer")
        self._check_audience(expected.client_id)
        if not expected.nonce or claims.get("nonce") != expected.nonce:
            raise BadToken("it was not made for this login: its nonce is another one")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 1 <= len(subject) <= 255:
            raise BadToken("it has no subject")
        ends_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
        if ends_s <= now_s:
            raise BadToken("it has expired: is the clock of one machine wrong?")
        if issued_s > now_s + OIDC_CLOCK_SKEW_S:
            raise BadToken("it is of the future: is the clock of one machine wrong?")
        if "nbf" in claims and _time(claims, "nbf") > now_s + OIDC_CLOCK_SKEW_S:
            raise BadToken("it is not good yet: is the clock of one machine wrong?")
        return ends_s

    def _check_audience(self, client_id: str) -> None:
        claims = self.claims
        audience = claims.get("aud")
        names = audience if isinstance(audience, list) else [audience]
        if client_id not in names:
            raise BadToken("it was made for another client")
        party = claims.get("azp")
        # One that is for others too says for whom it was made (OpenID Connect Core, 3.1.3.7).
        if party != client_id and (party is not None or len(names) > 1):
            raise BadToken("it was made for another client, and for us too")


def decoded(text: str) -> bytes:
    """base64url without `=`, in the one way in which it can be written."""
    try:
        # Python would skip what is no letter of it.
        found = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadToken("a part of it is not base64url") from None
    if encoded(found) != text:
        raise BadToken("a part of it is not base64url")
    return found


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    # True is an int for Python, and infinity a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        raise BadToken(f"its {name} is no time")
    return float(value)


def check_algorithms(names: Sequence[str]) -> None:
    """ValueError for one that is not taken."""
    for name in names:
        if name not in ALGORITHMS:
            raise ValueError(f"{name!r} is not taken; accepted: {', '.join(ALGORITHMS)}")
