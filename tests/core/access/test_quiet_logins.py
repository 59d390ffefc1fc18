"""Logins without a proof and of nodes: a line for each address in an interval, and all of them in a count."""

import random

import pytest

from moorline.core.access.audit import SEVERAL, Act, AuditProof, Kind, Verdict, counted
from moorline.core.access.quiet_logins import QuietLogins, is_quiet
from moorline.limits import AUDIT_QUIET_MS, AUDIT_QUIET_SUMS_MAX

WALL_MS = 1_763_424_000_000


def login(address: str = "10.0.0.1", principal: str = "anonymous") -> Act:
    proof = AuditProof.NODE if principal.startswith("$node/") else AuditProof.NOTHING
    return Act(Kind.LOGIN, principal, proof, address, "Login", "/", Verdict.GRANTED)


def test_the_first_is_a_line_and_those_behind_it_are_one_at_the_end() -> None:
    quiet = QuietLogins()
    (first,) = quiet.heard(login(), 0, WALL_MS)
    assert (first.principal, first.address, first.count) == ("anonymous", "10.0.0.1", 1)
    for at in range(1, 1_001):
        assert quiet.heard(login(), at, WALL_MS + at) == []
    assert quiet.due_ms == AUDIT_QUIET_MS
    assert quiet.looked(AUDIT_QUIET_MS - 1) == []
    (later,) = quiet.looked(AUDIT_QUIET_MS)
    assert (later.count, later.wall_ms, later.last_ms) == (1_000, WALL_MS + 1, WALL_MS + 1_000)
    (again,) = quiet.heard(login(), AUDIT_QUIET_MS, WALL_MS + AUDIT_QUIET_MS)
    assert again.count == 1


def test_each_address_and_each_node_is_told_apart() -> None:
    quiet = QuietLogins()
    comers = (login(), login("10.0.0.2"), login(principal="$node/b"), login(principal="$node/c"))
    for who in comers:
        assert len(quiet.heard(who, 0, WALL_MS)) == 1
        assert quiet.heard(who, 1, WALL_MS + 1) == []
    assert len(quiet.ended()) == len(comers)
    assert quiet.ended() == []


@pytest.mark.parametrize("seed", range(10))
def test_every_login_is_in_the_count_of_one_line_and_a_flood_is_few(seed: int) -> None:
    chance, quiet, lines, now_ms = random.Random(seed), QuietLogins(), [], 0
    for number in range(3 * AUDIT_QUIET_SUMS_MAX):
        now_ms += chance.randrange(2)
        address = f"address-{number if chance.random() < 0.9 else number % 7}"
        principal = "$node/b" if chance.random() < 0.1 else "anonymous"
        lines += quiet.heard(login(address, principal), now_ms, WALL_MS + now_ms)
        quiet.check()
    lines += quiet.ended()
    assert counted(lines) == 3 * AUDIT_QUIET_SUMS_MAX
    assert len(lines) <= 2 * AUDIT_QUIET_SUMS_MAX
    assert any(line.address == SEVERAL for line in lines)


def test_only_granted_logins_without_a_proof_or_of_nodes_are_quiet() -> None:
    assert is_quiet(login())
    assert is_quiet(login(principal="$node/b"))
    for act in (
        Act(Kind.LOGIN, "anonymous", AuditProof.NOTHING, "", "Login", "/", Verdict.DENIED),
        Act(Kind.LOGIN, "alice", AuditProof.TOKEN, "", "Login", "/", Verdict.GRANTED),
        Act(Kind.REFUSAL, "anonymous", AuditProof.NOTHING, "", "Publish", "/", Verdict.GRANTED),
    ):
        assert not is_quiet(act)


def test_a_broken_state_is_found() -> None:
    quiet = QuietLogins()
    for number in range(2):
        quiet.heard(login(f"{number}"), number, WALL_MS)
    next(iter(quiet._sums.values())).ends_ms += 10
    with pytest.raises(AssertionError, match="L2"):
        quiet.check()


def test_l1_more_sums_than_may_be_are_seen() -> None:
    quiet = QuietLogins()
    quiet.heard(login(), 0, WALL_MS)
    ((who, found),) = quiet._sums.items()
    for number in range(AUDIT_QUIET_SUMS_MAX):
        quiet._sums[who._replace(address=str(number))] = found
    with pytest.raises(AssertionError, match="L1"):
        quiet.check()
