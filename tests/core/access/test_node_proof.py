"""The proof of a node: what is said by one node to another in one conversation proves nothing in another."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access import node_proof
from moorline.core.access.node_proof import NodeCall, NodeChallenge

SECRET = b"s" * 32
CALL = NodeCall("home-a", "home-b", b"c" * 32)
NONCE = b"n" * 32


@pytest.mark.parametrize(
    ("secret", "call", "nonce"),
    [
        (b"t" * 32, CALL, NONCE),
        (SECRET, NodeCall("home-c", "home-b", CALL.nonce), NONCE),
        (SECRET, NodeCall("home-a", "home-c", CALL.nonce), NONCE),
        (SECRET, NodeCall("home-b", "home-a", CALL.nonce), NONCE),
        (SECRET, NodeCall("home-ah", "ome-b", CALL.nonce), NONCE),
        (SECRET, NodeCall("home-a", "home-b", NONCE), CALL.nonce),
        (SECRET, CALL, b"m" * 32),
    ],
)
def test_every_part_changes_both_proofs(secret: bytes, call: NodeCall, nonce: bytes) -> None:
    for prove in (node_proof.acceptor_proof, node_proof.caller_proof):
        assert not node_proof.is_same(prove(secret, call, nonce), prove(SECRET, CALL, NONCE))


def test_what_the_acceptor_says_is_not_what_the_caller_must_say() -> None:
    own = node_proof.acceptor_proof(SECRET, CALL, NONCE)
    assert not node_proof.is_same(own, node_proof.caller_proof(SECRET, CALL, NONCE))


def test_what_is_sent_is_what_is_read() -> None:
    assert node_proof.decode_call(node_proof.encoded(CALL)) == CALL
    challenge = NodeChallenge(NONCE, b"p" * 32)
    assert node_proof.decode_challenge(node_proof.encoded(challenge)) == challenge


@given(st.binary(max_size=200))
def test_what_is_no_step_is_none(said: bytes) -> None:
    call, challenge = node_proof.decode_call(said), node_proof.decode_challenge(said)
    assert call is None or len(call.nonce) == 32
    assert challenge is None or len(challenge.nonce) == 32


@pytest.mark.parametrize(
    "said",
    [
        b"",
        node_proof.encoded(NodeCall("a", "b", b"short")),
        node_proof.encoded(NodeCall("a" * 5_000, "b", b"c" * 32)),
        msgspec.msgpack.encode(["a", b"b", b"c" * 32]),
        msgspec.msgpack.encode(["a", "b", b"c" * 32, 4]),
    ],
)
def test_a_beginning_that_is_none(said: bytes) -> None:
    assert node_proof.decode_call(said) is None
