"""Room: access. Whether a token was signed with a key: the arithmetic of JSON Web Signatures (RFC 7515), by
the package `cryptography`.

Which algorithm goes with which key is decided before (core/access/id_token.py); here it is looked at again,
by the type of the key that was made.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from moorline.core.access.id_token import BadToken, IdToken, Key, decoded
from moorline.limits import OIDC_RSA_BITS_MAX, OIDC_RSA_BITS_MIN

_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}


def check_signature(token: IdToken, key: Key) -> None:
    """`BadToken` if it is not of that key."""
    try:
        _CHECKS[key.kty](token, key)
    except InvalidSignature:
        raise BadToken("its signature is wrong") from None
    except ValueError as error:
        # What `cryptography` says of a key that is none: a point that is on no curve, an even number.
        raise BadToken(f"the key of the issuer is none: {error}") from None


def _rsa(token: IdToken, key: Key) -> None:
    modulus, exponent = _number(key.n), _number(key.e)
    if not OIDC_RSA_BITS_MIN <= modulus.bit_length() <= OIDC_RSA_BITS_MAX:
        raise BadToken(
            f"the key of the issuer has {modulus.bit_length()} bits; {OIDC_RSA_BITS_MIN} to "
            f"{OIDC_RSA_BITS_MAX} are taken"
        )
    digest = _HASHES[token.algorithm[2:]]
    pad: padding.AsymmetricPadding = padding.PKCS1v15()
    if token.algorithm.startswith("PS"):
        pad = padding.PSS(padding.MGF1(digest), digest.digest_size)
    public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    public.verify(token.signature, token.signed, pad, digest)


def _ec(token: IdToken, key: Key) -> None:
    curve = _CURVES[key.crv]
    size = (curve.key_size + 7) // 8
    # Both halves in full (RFC 7518, 3.4): a shorter one would be another spelling of the same.
    if len(token.signature) != 2 * size:
        raise InvalidSignature
    r = int.from_bytes(token.signature[:size])
    s = int.from_bytes(token.signature[size:])
    public = ec.EllipticCurvePublicNumbers(_number(key.x), _number(key.y), curve).public_key()
    digest = _HASHES[token.algorithm[2:]]
    public.verify(encode_dss_signature(r, s), token.signed, ec.ECDSA(digest))


def _okp(token: IdToken, key: Key) -> None:
    public = ed25519.Ed25519PublicKey.from_public_bytes(decoded(key.x))
    public.verify(token.signature, token.signed)


_CHECKS: Final[Mapping[str, Callable[[IdToken, Key], None]]] = {"RSA": _rsa, "EC": _ec, "OKP": _okp}


def _number(text: str) -> int:
    return int.from_bytes(decoded(text))
