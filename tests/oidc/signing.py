"""Keys and tokens of the tests' own issuer: what is right, and what no issuer would sign."""

import base64
import hmac
import json
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Jwk = dict[str, Any]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int | None = None) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8))


def joined(head: Any, claims: Any, signature: bytes = b"") -> str:
    parts = (json.dumps(head).encode(), json.dumps(claims).encode(), signature)
    return ".".join(map(b64, parts))


class SigningKey:
    """One key of an issuer."""

    def __init__(self, alg: str = "ES256", kid: str = "one", *, rsa_bits: int = 2_048) -> None:
        self.alg, self.kid = alg, kid
        self._key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
        if alg[:2] in ("RS", "PS"):
            self._key = rsa.generate_private_key(65_537, rsa_bits)
        elif alg == "ES256":
            self._key = ec.generate_private_key(ec.SECP256R1())
        else:
            assert alg == "EdDSA", alg
            self._key = ed25519.Ed25519PrivateKey.generate()

    @property
    def jwk(self) -> Jwk:
        if isinstance(self._key, rsa.RSAPrivateKey):
            numbers = self._key.public_key().public_numbers()
            own: Jwk = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        elif isinstance(self._key, ec.EllipticCurvePrivateKey):
            point = self._key.public_key().public_numbers()
            own = {"kty": "EC", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)}
        else:
            raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
            own = {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}
        return {**own, "kid": self.kid, "use": "sig", "alg": self.alg}

    @property
    def pem(self) -> bytes:
        """The public half: what somebody would take for a shared secret who confuses algorithms."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def token(self, claims: Any, **head: Any) -> str:
        """`head` may say another algorithm than the one that is signed with."""
        said = {"alg": self.alg, "kid": self.kid, "typ": "JWT", **head}
        said = {name: value for name, value in said.items() if value is not None}
        signed = joined(said, claims).rpartition(".")[0]
        return f"{signed}.{b64(self._signature(signed.encode()))}"

    def _signature(self, data: bytes) -> bytes:
        if isinstance(self._key, rsa.RSAPrivateKey):
            pad: padding.AsymmetricPadding = padding.PKCS1v15()
            if self.alg.startswith("PS"):
                pad = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
            return self._key.sign(data, pad, hashes.SHA256())
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32) + s.to_bytes(32)
        return self._key.sign(data)


def by_shared_secret(claims: Any, secret: bytes, kid: str, alg: str = "HS256") -> str:
    """What somebody makes who takes a public key for a secret."""
    signed = joined({"alg": alg, "kid": kid}, claims).rpartition(".")[0]
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), 'sha256'))}"
