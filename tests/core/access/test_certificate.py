"""What a certificate says, and why it may prove nobody: plain calls."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.access.certificate import PeerCertificate, problem_of

NOW_MS = 1_000_000
GOOD = PeerCertificate(
    common_names=("billing",),
    issuer="CN=users",
    serial=7,
    not_before_ms=0,
    not_after_ms=2_000_000,
    is_for_clients=True,
    fingerprint=b"f" * 32,
)


def changed(**fields: object) -> PeerCertificate:
    return msgspec.structs.replace(GOOD, **fields)


@pytest.mark.parametrize(
    "certificate",
    [
        GOOD,
        changed(common_names=("Łukasz Żółć",)),
        changed(common_names=("host.example",), dns_names=("host.example",)),
        changed(common_names=(), emails=("billing@example.org",)),
        changed(common_names=(), uris=("spiffe://example.org/billing",)),
        changed(common_names=("x" * 255,)),
        changed(is_of_client_authority=False, is_of_node_authority=True),
    ],
)
def test_one_that_may_prove_somebody(certificate: PeerCertificate) -> None:
    assert problem_of(certificate, NOW_MS) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"common_names": ()}, "it names nobody"),
        ({"common_names": ("",)}, "it names nobody"),
        ({"common_names": ("",), "emails": ("a@b.c",)}, "a name in it is empty"),
        ({"common_names": ("a", "b")}, "it has 2 common names"),
        ({"common_names": ("a", "a")}, "it has 2 common names"),
        ({"common_names": ("a\0b",)}, "control character"),
        ({"common_names": ("a\nb",)}, "newline"),
        ({"common_names": ("a\u2028b",)}, "newline"),
        ({"common_names": ("a\x9bb",)}, "control character"),
        ({"emails": ("a\0@b.c",)}, "control character"),
        ({"common_names": ("a/b",)}, "has a / in it"),
        ({"common_names": ("anonymous",)}, "is anonymous"),
        ({"common_names": (" Anonymous",)}, "is anonymous"),
        ({"common_names": ("x" * 256,)}, "more than 255 characters"),
        ({"is_for_clients": False}, "clientAuth"),
        ({"not_before_ms": NOW_MS + 1}, "not valid yet"),
        ({"not_after_ms": NOW_MS}, "has expired"),
        ({"is_of_client_authority": False}, "neither tls_client_ca nor tls_node_ca"),
    ],
)
def test_one_that_proves_nobody_says_why(fields: dict[str, object], said: str) -> None:
    problem = problem_of(changed(**fields), NOW_MS)
    assert problem is not None
    assert said in problem.text
    codes = {
        "is_for_clients": "CERTIFICATE_MISUSED",
        "not_before_ms": "CERTIFICATE_NOT_YET_VALID",
        "not_after_ms": "CERTIFICATE_EXPIRED",
        "is_of_client_authority": "CERTIFICATE_UNTRUSTED",
    }
    assert problem.code == codes.get(next(iter(fields)), "CERTIFICATE_OF_NOBODY")


@given(st.text(max_size=300))
def test_a_common_name_that_is_taken_is_one_line_and_one_level(name: str) -> None:
    if problem_of(changed(common_names=(name,)), NOW_MS) is None:
        assert 1 <= len(name) <= 255
        assert len(name.splitlines()) == 1
        assert "/" not in name
        assert "\0" not in name
        assert name != "anonymous"
