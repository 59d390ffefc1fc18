"""Tokens: nothing but what a resolver has signed is taken, for whom, for what, and until when."""

import hmac
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.directory.made_tokens import token_of

from moorline.core.directory.token import (
    TOKEN_BYTES,
    AddressQuestion,
    Claim,
    Signer,
    TokenJudge,
    address_proof,
    login_of,
)

SECRET = bytes(range(32))
NOW_S = 1_800_000_000
LIFE_S = 300
CLAIM = Claim(b"r" * 16, b"i" * 16, "alice", "gssapi", False, NOW_S + 60, "/oslo/fjord", 3)

OTHERS: dict[str, Any] = {
    "resolver": b"q" * 16,
    "instance": b"j" * 16,
    "principal": "bob",
    "proof": "certificate",
    "is_local": True,
    "expires_s": NOW_S + 61,
    "path": "/oslo/fjord2",
    "permissions": 7,
    "ends_s": NOW_S + 100,
    "mark": b"m" * 16,
}


def taken(claim: Claim, token: bytes, *, secret: bytes | None = SECRET, now_s: int = NOW_S) -> bool:
    judge = TokenJudge(secret, claim, now_s, LIFE_S)
    return not judge.why_not(claim.path, claim.permissions, token)


def test_what_was_signed_is_taken() -> None:
    token = token_of(SECRET, CLAIM)
    assert len(token) == TOKEN_BYTES
    assert taken(CLAIM, token)


@pytest.mark.parametrize("field", OTHERS)
def test_t10_a_token_holds_for_each_part_of_its_claim(field: str) -> None:
    """T10: another path, other permissions, another holder, resolver or publisher."""
    other = msgspec.structs.replace(CLAIM, **{field: OTHERS[field]})
    assert not taken(other, token_of(SECRET, CLAIM))


def test_t10_a_token_that_is_altered_is_refused() -> None:
    """T10: with another server's secret, truncated, empty, one bit flipped."""
    token = token_of(SECRET, CLAIM)
    assert not taken(CLAIM, token, secret=bytes(32))
    assert not taken(CLAIM, token, secret=None)
    assert not taken(CLAIM, token_of(bytes(32), CLAIM), secret=None)
    for size in range(TOKEN_BYTES):
        assert not taken(CLAIM, token[:size])
    for bit in range(TOKEN_BYTES * 8):
        flipped = bytearray(token)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not taken(CLAIM, bytes(flipped))


def test_t11_the_life_of_a_token() -> None:
    """T11: just inside its life it is accepted, just outside refused, from the future refused."""
    token = token_of(SECRET, CLAIM)
    assert taken(CLAIM, token, now_s=CLAIM.expires_s - 1)
    assert not taken(CLAIM, token, now_s=CLAIM.expires_s)
    assert taken(CLAIM, token, now_s=CLAIM.expires_s - LIFE_S)
    assert not taken(CLAIM, token, now_s=CLAIM.expires_s - LIFE_S - 1)


def test_a_token_ends_with_the_proof_of_its_holder() -> None:
    claim = msgspec.structs.replace(CLAIM, ends_s=NOW_S + 10)
    token = token_of(SECRET, claim)
    assert taken(claim, token, now_s=NOW_S + 9)
    assert not taken(claim, token, now_s=NOW_S + 10)
    longer = msgspec.structs.replace(claim, ends_s=0)
    assert not taken(longer, token), "that it ends is under the token"


TEXT = st.text(max_size=12)


PARTS = st.tuples(TEXT, TEXT, st.binary(max_size=12), TEXT)


@given(PARTS, PARTS)
def test_no_two_claims_are_the_same_bytes(
    one: tuple[str, str, bytes, str], other: tuple[str, str, bytes, str]
) -> None:
    def signed(principal: str, proof: str, mark: bytes, path: str) -> bytes:
        claim = msgspec.structs.replace(
            CLAIM, principal=principal, proof=proof, mark=mark, path=path
        )
        return token_of(SECRET, claim)

    assert (signed(*one) == signed(*other)) is (one == other)


def test_a_signer_makes_the_same_tokens() -> None:
    signer = Signer(SECRET, CLAIM)
    for path, permissions in (("/a", 1), ("/b/c", 127)):
        claim = msgspec.structs.replace(CLAIM, path=path, permissions=permissions)
        assert signer.token(path, permissions) == token_of(SECRET, claim)


def test_an_address_is_proven_to_one_resolver_by_one_question() -> None:
    question = AddressQuestion.of(b"r" * 16, SECRET, b"n" * 32)
    proof = address_proof(SECRET, question)
    assert proof != address_proof(SECRET, question._replace(nonce=b"m" * 32))
    assert proof != address_proof(SECRET, question._replace(resolver=b"q" * 16))
    assert proof != address_proof(bytes(32), question)
    assert proof != token_of(SECRET, CLAIM)


def test_a_question_is_found_again_in_its_bytes_and_does_not_tell_the_key() -> None:
    question = AddressQuestion.of(b"r" * 16, SECRET, b"n" * 32)
    assert AddressQuestion.parse(bytes(question)) == question
    assert AddressQuestion.parse(bytes(question)[:-1]) is None
    assert AddressQuestion.parse(b"") is None
    assert question.login == login_of(SECRET)
    assert SECRET[:4] not in bytes(question)


@given(st.binary(min_size=32, max_size=32), st.text(max_size=80), st.integers(0, 255))
def test_a_token_is_the_hmac_of_the_design(secret: bytes, path: str, permissions: int) -> None:
    claim = Claim(b"r" * 16, b"i" * 16, "ann", "password", True, 77, path, permissions, 99, b"mark")
    said = b"moorline token 2" + b"r" * 16 + b"i" * 16 + (77).to_bytes(8) + (99).to_bytes(8)
    said += bytes((1, permissions))
    for text in ("ann", "password", "mark", path):
        said += len(text.encode()).to_bytes(4) + text.encode()
    signer = Signer(secret, claim)
    wanted = hmac.digest(secret, said, "sha512")
    # Twice: what is kept from the first does not change the second.
    assert [signer.token(path, permissions) for _ in range(2)] == [wanted, wanted]
