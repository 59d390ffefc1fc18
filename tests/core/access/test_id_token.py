"""ID tokens: what is said in them, and which key may have signed them."""

import base64
import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oidc.signing import joined

from moorline.core.access.id_token import (
    ALGORITHMS,
    BY_DEFAULT,
    BadToken,
    Expected,
    IdToken,
    Key,
    Keys,
    check_algorithms,
    decoded,
    encoded,
)
from moorline.limits import OIDC_CLOCK_SKEW_S

NOW_S = 1_800_000_000
EXPECTED = Expected("https://issuer.example", "moor", "n")
RIGHT: dict[str, Any] = {
    "iss": "https://issuer.example",
    "aud": "moor",
    "sub": "7",
    "nonce": "n",
    "iat": NOW_S,
    "exp": NOW_S + 300,
}
RSA = Key("RSA", "r", n="AQAB", e="AQAB")
P256 = Key("EC", "e", crv="P-256")


def token(head: Any = None, **claims: Any) -> IdToken:
    said = {name: value for name, value in (RIGHT | claims).items() if value is not None}
    return IdToken.parsed(joined(head or {"alg": "ES256", "kid": "e"}, said), BY_DEFAULT)


def test_one_that_is_right_is_good_until_its_end() -> None:
    assert token().check(EXPECTED, NOW_S) == NOW_S + 300
    assert token(aud=["moor"]).check(EXPECTED, NOW_S) == NOW_S + 300
    assert token(aud=["moor", "b"], azp="moor").check(EXPECTED, NOW_S) == NOW_S + 300
    assert "7" not in repr(token())


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://issuer.example/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["https://issuer.example"]}, "another issuer"),
        ({"aud": "other"}, "another client"),
        ({"aud": ["other"]}, "another client"),
        ({"aud": []}, "another client"),
        ({"aud": None}, "another client"),
        ({"aud": "moor moor"}, "another client"),
        ({"aud": {"moor": 1}}, "another client"),
        ({"aud": ["moor", "other"]}, "and for us too"),
        ({"aud": ["moor", "other"], "azp": "other"}, "and for us too"),
        ({"azp": "other"}, "and for us too"),
        ({"azp": 7}, "and for us too"),
        ({"nonce": "other"}, "nonce"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"sub": None}, "subject"),
        ({"sub": ""}, "subject"),
        ({"sub": 7}, "subject"),
        ({"sub": "x" * 256}, "subject"),
        ({"exp": None}, "exp is no time"),
        ({"exp": "1900000000"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": 1e300}, "exp is no time"),
        ({"exp": -1}, "exp is no time"),
        ({"exp": NOW_S}, "expired"),
        ({"exp": NOW_S - OIDC_CLOCK_SKEW_S}, "expired"),
        ({"iat": None}, "iat is no time"),
        ({"iat": NOW_S + OIDC_CLOCK_SKEW_S + 1}, "of the future"),
        ({"nbf": NOW_S + OIDC_CLOCK_SKEW_S + 1}, "not good yet"),
        ({"nbf": "now"}, "nbf is no time"),
    ],
)
def test_one_that_is_not_proves_nothing(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(BadToken, match=why):
        token(**claims).check(EXPECTED, NOW_S)


def test_clocks_may_differ_a_little() -> None:
    token(iat=NOW_S + OIDC_CLOCK_SKEW_S, nbf=NOW_S + OIDC_CLOCK_SKEW_S).check(EXPECTED, NOW_S)


def test_without_a_nonce_of_ours_none_is_right() -> None:
    with pytest.raises(BadToken, match="nonce"):
        token(nonce="").check(Expected("https://issuer.example", "moor", ""), NOW_S)


@pytest.mark.parametrize(
    "head",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "NONE"},
        {"alg": ""},
        {"alg": "HS256"},
        {"alg": "HS512"},
        {"alg": "ES256K"},
        {"alg": "RS1"},
        {"alg": "RS384"},
        {"alg": "es256"},
        {"alg": "ES256", "crit": ["exp"]},
        {"alg": "ES256", "crit": []},
        {"alg": "ES256", "typ": "at+jwt"},
        {"alg": "ES256", "typ": "logout+jwt"},
        {"alg": ["ES256"]},
        {"alg": None},
        {"kid": "e"},
        {"alg": "ES256", "kid": 7},
        [],
        "ES256",
    ],
)
def test_a_head_that_is_not_taken(head: Any) -> None:
    with pytest.raises(BadToken):
        IdToken.parsed(joined(head, RIGHT), BY_DEFAULT)


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "...", "a.b", "a.b.c", "a.b.c.d.e", "é.é.é", "x" * 300_000, "e30.e30.e30"],
)
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(BadToken):
        IdToken.parsed(text, BY_DEFAULT)


@pytest.mark.parametrize("place", [0, 1])
def test_a_part_that_is_nested_too_deep_is_refused(place: int) -> None:
    parts = ["e30", "e30", "e30"]
    parts[place] = encoded(b'{"x": ' + b"[" * 9_999)
    with pytest.raises(BadToken, match="cannot be read"):
        IdToken.parsed(".".join(parts), BY_DEFAULT)


def test_each_part_has_one_spelling() -> None:
    whole = joined({"alg": "ES256"}, RIGHT, b"sig!")
    head, claims, signature = whole.split(".")
    IdToken.parsed(whole, BY_DEFAULT)
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = signature[:-1] + last[last.index(signature[-1]) + 1]
    for text in (
        f"{head}.{claims}.{signature}=",
        f"{head}.{claims}.{signature}==",
        f"{head}.{claims}.{other}",
        f"{head}.{claims}.{signature[:2]}\n{signature[2:]}",
        f"{head}.{claims}.{signature[:2]} {signature[2:]}",
        f"{head}.{claims}.{base64.b64encode(bytes([251, 255, 254])).decode()}",
    ):
        with pytest.raises(BadToken):
            IdToken.parsed(text, BY_DEFAULT)


@given(st.binary(max_size=200))
def test_base64url_goes_there_and_back(data: bytes) -> None:
    assert decoded(encoded(data)) == data


@given(st.binary(max_size=60), st.integers(0, 2))
def test_whatever_stands_in_a_part_it_is_read_or_refused(data: bytes, place: int) -> None:
    parts = joined({"alg": "ES256"}, RIGHT, b"s").split(".")
    parts[place] = data.decode("latin-1")
    with contextlib.suppress(BadToken):
        IdToken.parsed(".".join(parts), BY_DEFAULT)


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_is_found_by_its_name_and_by_what_it_is_for() -> None:
    assert token().key_of([RSA, P256]) == P256
    assert token({"alg": "ES256"}).key_of([RSA, P256]) == P256
    assert token({"alg": "ES256", "kid": "new"}).key_of([RSA, P256]) is None
    assert token({"alg": "ES256", "kid": "r"}).key_of([RSA, P256]) is None, "it is one of RSA"
    assert token({"alg": "RS256", "kid": "e"}).key_of([RSA, P256]) is None


@pytest.mark.parametrize(
    "key",
    [
        Key("EC", "e", crv="P-256", use="enc"),
        Key("EC", "e", crv="P-256", alg="ES384"),
        Key("EC", "e", crv="P-256", alg="ECDH-ES"),
        Key("EC", "e", crv="P-256", key_ops=["sign"]),
        Key("EC", "e", crv="P-384"),
        Key("EC", "e", crv="secp256k1"),
        Key("oct", "e", crv="P-256"),
        Key("OKP", "e", crv="Ed25519"),
    ],
)
def test_a_key_for_something_else_is_not_taken(key: Key) -> None:
    assert token().key_of([key]) is None


def test_two_that_could_be_it_are_none() -> None:
    with pytest.raises(BadToken, match="several"):
        token().key_of([P256, msgspec.structs.replace(P256, x="other")])
    with pytest.raises(BadToken, match="several"):
        token({"alg": "ES256"}).key_of([P256, msgspec.structs.replace(P256, kid="second")])


def test_a_key_that_cannot_be_read_is_left_out() -> None:
    raw = b'{"keys": [{"kty": 7}, {}, {"kty": "EC", "kid": "e", "crv": "P-256", "x5c": ["x"], "d": 1}]}'
    assert msgspec.json.decode(raw, type=Keys).usable() == [P256]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"keys": 7}', type=Keys)


def test_no_algorithm_has_a_shared_secret() -> None:
    assert {kind for kind, _ in ALGORITHMS.values()} == {"RSA", "EC", "OKP"}
    assert not any(name.startswith("HS") or name.lower() == "none" for name in ALGORITHMS)
    check_algorithms(list(ALGORITHMS))
    for name in ("none", "HS256", ""):
        with pytest.raises(ValueError, match="not taken"):
            check_algorithms([name])
    assert set(BY_DEFAULT) <= set(ALGORITHMS)
    assert json.dumps(RIGHT)
