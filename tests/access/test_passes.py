"""Passes: whose they are, and for how long."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moorline.access.passes import Passes
from moorline.core.access.certificate import CertificateProblem, PeerCertificate
from moorline.core.access.principal import Proof
from moorline.errors import Denied
from moorline.limits import PASS_LIFE_S, PASSES_MAX, PASSES_PER_PRINCIPAL_MAX
from moorline.net.clock import wall_ms
from moorline.net.session import Session
from moorline.net.tls import ANONYMOUS, Identity
from moorline.wire.access import MakePass


def of(identity: Identity, *, is_local: bool = False, page: object = None) -> Session:
    """All that a pass asks of a session."""
    session: Any = SimpleNamespace(identity=identity, is_local=is_local, page=page)
    return cast("Session", session)


def test_a_pass_is_its_askers_and_its_text_is_not_kept() -> None:
    passes = Passes()
    made = passes.make(of(ANONYMOUS, is_local=True), MakePass(1))
    found = passes.find(made.text.encode())
    assert found is not None
    assert (found.identity.principal, found.is_local) == ("anonymous", True)
    assert made.text not in repr(vars(passes))
    assert passes.find(made.text[:-1].encode()) is None
    assert passes.find(b"") is None


def test_it_lasts_no_longer_than_asked_for_nor_than_its_askers_proof() -> None:
    passes = Passes()
    now_ms = wall_ms()
    short = passes.make(of(ANONYMOUS), MakePass(1, 60))
    assert now_ms + 60_000 <= short.expires_us // 1_000 <= wall_ms() + 60_000
    whole = passes.make(of(ANONYMOUS), MakePass(1))
    assert whole.expires_us // 1_000 <= wall_ms() + PASS_LIFE_S * 1_000
    ending = Identity("anna", Proof.TOKEN, expires_ms=now_ms + 5_000)
    assert passes.make(of(ending), MakePass(1)).expires_us == (now_ms + 5_000) * 1_000


def test_one_whose_time_is_over_is_nobodys() -> None:
    passes = Passes()
    made = passes.make(of(Identity("anna", Proof.TOKEN, expires_ms=wall_ms() - 1)), MakePass(1))
    assert passes.find(made.text.encode()) is None


def test_nodes_get_none() -> None:
    with pytest.raises(Denied, match="nodes get no passes"):
        Passes().make(of(Identity("node:node-2", Proof.NODE)), MakePass(1))


def test_only_so_many_are_kept_and_the_oldest_go_first_ones_own() -> None:
    passes = Passes()
    others = passes.make(of(Identity("anna", Proof.TOKEN)), MakePass(1))
    made = [
        passes.make(of(ANONYMOUS), MakePass(call)) for call in range(PASSES_PER_PRINCIPAL_MAX + 10)
    ]
    known = [passes.find(one.text.encode()) is not None for one in made]
    assert known == [False] * 10 + [True] * PASSES_PER_PRINCIPAL_MAX
    assert passes.find(others.text.encode()) is not None
    for number in range(PASSES_MAX):
        passes.make(of(Identity(f"one {number}", Proof.TOKEN)), MakePass(1))
    assert passes.find(others.text.encode()) is None


def test_a_stranger_without_a_proof_drives_out_nobody_on_this_machine() -> None:
    passes = Passes()
    ours = passes.make(of(ANONYMOUS, is_local=True), MakePass(1))
    for call in range(PASSES_PER_PRINCIPAL_MAX + 1):
        passes.make(of(ANONYMOUS), MakePass(call))
    assert passes.find(ours.text.encode()) is not None


class Untrusting:
    """Takes no certificate any more."""

    def describe(self, encoded: bytes, now_ms: int) -> CertificateProblem:
        raise NotImplementedError

    def problem_of(self, certificate: PeerCertificate, now_ms: int) -> str:  # noqa: ARG002
        return "it is revoked"


def test_a_pass_ends_with_the_certificate_by_which_it_was_asked_for() -> None:
    passes = Passes()
    certificate = cast("PeerCertificate", object())
    proven = Identity("anna", Proof.CERTIFICATE, certificate=certificate)
    by_certificate = passes.make(of(proven), MakePass(1))
    by_token = passes.make(of(Identity("anna", Proof.TOKEN)), MakePass(2))
    passes.judge_again(Untrusting())
    assert passes.find(by_certificate.text.encode()) is None
    assert passes.find(by_token.text.encode()) is not None
