"""Signatures of tokens: those of other libraries, and those that are none."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.oidc.signing import SigningKey, b64, by_shared_secret, number

from moorline.access.signatures import check_signature
from moorline.core.access.id_token import ALGORITHMS, BadToken, IdToken, Key, Keys

FOUND: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "id_tokens.json").read_text()
)
KEYS = Keys(FOUND["keys"]).usable()
ALL = tuple(ALGORITHMS)
CLAIMS = {"sub": "7"}


def key_of(signing: SigningKey, **other: Any) -> Key:
    return msgspec.convert(signing.jwk | other, Key)


def check(text: str, key: Key) -> None:
    check_signature(IdToken.parsed(text, ALL), key)


@pytest.mark.parametrize(
    "one", FOUND["tokens"], ids=[f"{one['alg']} by {one['by']}" for one in FOUND["tokens"]]
)
def test_what_others_have_signed_is_right_and_any_change_of_it_is_not(one: dict[str, str]) -> None:
    token = IdToken.parsed(one["token"], ALL)
    key = token.key_of(KEYS)
    assert key is not None
    check_signature(token, key)
    for place in (0, len(token.signed) // 2, len(token.signed) - 1):
        signed = bytearray(token.signed)
        signed[place] ^= 1
        with pytest.raises(BadToken, match="signature"):
            check_signature(msgspec.structs.replace(token, signed=bytes(signed)), key)
    for place in range(0, len(token.signature), 7):
        signature = bytearray(token.signature)
        signature[place] ^= 1
        with pytest.raises(BadToken, match="signature"):
            check_signature(msgspec.structs.replace(token, signature=bytes(signature)), key)
    for other in (b"", bytes(len(token.signature)), token.signature + b"\0", b"\0" * 1_000):
        with pytest.raises(BadToken, match="signature"):
            check_signature(msgspec.structs.replace(token, signature=other), key)


@pytest.mark.parametrize("alg", ["RS256", "PS256", "ES256", "EdDSA"])
def test_another_key_of_the_same_kind_is_not_its_key(alg: str) -> None:
    text = SigningKey(alg).token(CLAIMS)
    with pytest.raises(BadToken, match="signature"):
        check(text, key_of(SigningKey(alg)))


def test_a_signature_by_another_way_of_the_same_key_is_none() -> None:
    signing = SigningKey("RS256")
    with pytest.raises(BadToken, match="signature"):
        check(signing.token(CLAIMS, alg="PS256"), key_of(signing, alg=None))
    with pytest.raises(BadToken, match="signature"):
        check(signing.token(CLAIMS, alg="RS512"), key_of(signing, alg=None))


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_a_public_key_is_nobodys_secret(alg: str) -> None:
    signing = SigningKey(alg)
    for secret in (signing.pem, json.dumps(signing.jwk).encode(), b""):
        text = by_shared_secret(CLAIMS, secret, signing.kid)
        with pytest.raises(BadToken, match="algorithm"):
            IdToken.parsed(text, ALL)
        # Whatever the settings say.
        with pytest.raises(BadToken, match="algorithm"):
            IdToken.parsed(text, (*ALL, "HS256"))
        # The same bytes under an algorithm that is taken.
        with pytest.raises(BadToken):
            check(by_shared_secret(CLAIMS, secret, signing.kid, alg), key_of(signing))


def test_a_key_that_the_token_brings_itself_is_not_looked_at() -> None:
    ours, theirs = SigningKey(), SigningKey()
    text = theirs.token(
        CLAIMS, jwk=theirs.jwk, x5c=[b64(theirs.pem)], jku="https://evil.example/keys"
    )
    token = IdToken.parsed(text, ALL)
    assert token.key_of([key_of(ours)]) == key_of(ours)
    with pytest.raises(BadToken, match="signature"):
        check_signature(token, key_of(ours))


@pytest.mark.parametrize(
    "key",
    [
        Key("RSA", n=number((1 << 1_023) + 1), e="AQAB"),
        Key("RSA", n=number((1 << 8_192) + 1), e="AQAB"),
        Key("RSA", n="", e="AQAB"),
        Key("RSA", n=number((1 << 2_047) + 1), e="AQ"),
        Key("RSA", n=number((1 << 2_047) + 1), e=""),
        Key("RSA", n=number((1 << 2_047) + 1), e="Ag"),
        Key("RSA", n="%%%", e="AQAB"),
    ],
)
def test_a_key_of_rsa_that_protects_nothing_is_none(key: Key) -> None:
    with pytest.raises(BadToken, match=r"key of the issuer|base64url"):
        check(SigningKey("RS256").token(CLAIMS), key)


def test_an_old_short_key_is_refused_though_its_signature_is_right() -> None:
    signing = SigningKey("RS256", rsa_bits=1_024)
    with pytest.raises(BadToken, match="1024 bits"):
        check(signing.token(CLAIMS), key_of(signing))


@pytest.mark.parametrize(("x", "y"), [("AA", "AA"), ("", ""), (number(5), number(7))])
def test_a_point_that_is_on_no_curve_is_no_key(x: str, y: str) -> None:
    with pytest.raises(BadToken, match="is none"):
        check(SigningKey("ES256").token(CLAIMS), Key("EC", crv="P-256", x=x, y=y))


def test_a_signature_of_zeros_is_none() -> None:
    signing = SigningKey("ES256")
    token = IdToken.parsed(signing.token(CLAIMS), ALL)
    for signature in (bytes(64), b"\xff" * 64, token.signature[:32] + bytes(32)):
        with pytest.raises(BadToken, match="signature"):
            check_signature(
                msgspec.structs.replace(token, signature=bytes(signature)), key_of(signing)
            )
