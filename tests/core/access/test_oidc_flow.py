"""Logins by an issuer: whose answer it is, for how long, and how often."""

import pytest

from moorline.core.access.id_token import encoded
from moorline.core.access.oidc_flow import Answer, Begun, Flows, NotOurs
from moorline.limits import NONCE_BYTES, OIDC_FLOW_S_MAX, OIDC_FLOWS_DONE_MAX

KEY = b"k" * NONCE_BYTES
BACK = "https://moor.example/console/"
NOW_S = 1_800_000_000


def chance(number: int = 0) -> bytes:
    return number.to_bytes(NONCE_BYTES)


def answer(begun: Begun, **other: str) -> Answer:
    return Answer(**{"flow": begun.flow, "state": begun.state, "code": "c", **other})


def test_a_login_that_began_here_is_finished_once() -> None:
    flows = Flows(KEY)
    begun = flows.begin(BACK, NOW_S, chance())
    assert len({begun.flow, begun.state, begun.nonce, begun.verifier, begun.challenge}) == 5
    assert flows.take(answer(begun), BACK, NOW_S + 5) == begun
    with pytest.raises(NotOurs, match="already"):
        flows.take(answer(begun), BACK, NOW_S + 6)
    flows.check()


def test_one_that_came_to_nothing_may_be_tried_again() -> None:
    flows = Flows(KEY)
    begun = flows.begin(BACK, NOW_S, chance())
    flows.take(answer(begun), BACK, NOW_S)
    flows.give_back(begun.flow)
    flows.take(answer(begun), BACK, NOW_S)


def test_an_answer_of_another_window_is_not_taken() -> None:
    flows = Flows(KEY)
    ours, theirs = (flows.begin(BACK, NOW_S, chance(number)) for number in (1, 2))
    for flow, state in (
        (ours.flow, theirs.state),
        (theirs.flow, ours.state),
        (ours.flow, ""),
        ("", ours.state),
        ("", ""),
        (ours.flow, ours.flow),
        (ours.flow, ours.nonce),
        (ours.flow + "=", ours.state),
        (ours.flow[:-1], ours.state),
        ("é", "é"),
    ):
        with pytest.raises(NotOurs, match="this window"):
            flows.take(Answer(flow, state, "c"), BACK, NOW_S)
    flows.take(answer(ours), BACK, NOW_S)


def test_another_node_or_the_same_behind_a_restart_does_not_know_it() -> None:
    begun = Flows(KEY).begin(BACK, NOW_S, chance())
    with pytest.raises(NotOurs, match="this window"):
        Flows(b"o" * NONCE_BYTES).take(answer(begun), BACK, NOW_S)


def test_it_is_of_the_page_that_began() -> None:
    flows = Flows(KEY)
    begun = flows.begin(BACK, NOW_S, chance())
    with pytest.raises(NotOurs, match="this window"):
        flows.take(answer(begun), "https://other.example/console/", NOW_S)


@pytest.mark.parametrize("later_s", [OIDC_FLOW_S_MAX, OIDC_FLOW_S_MAX + 1, 10**9, -1])
def test_its_time_is_bounded_both_ways(later_s: int) -> None:
    flows = Flows(KEY)
    begun = flows.begin(BACK, NOW_S, chance())
    with pytest.raises(NotOurs, match="too long"):
        flows.take(answer(begun), BACK, NOW_S + later_s)


def test_the_time_cannot_be_written_anew() -> None:
    flows = Flows(KEY)
    begun = flows.begin(BACK, NOW_S, chance())
    forged = encoded((NOW_S + 9_000).to_bytes(8) + chance())
    with pytest.raises(NotOurs, match="this window"):
        flows.take(Answer(forged, begun.state, "c"), BACK, NOW_S + 9_000)


def test_what_is_remembered_is_bounded_and_ends() -> None:
    flows = Flows(KEY)
    for number in range(OIDC_FLOWS_DONE_MAX):
        flows.take(answer(flows.begin(BACK, NOW_S, chance(number))), BACK, NOW_S)
    flows.check()
    with pytest.raises(NotOurs, match="too many"):
        flows.take(answer(flows.begin(BACK, NOW_S, chance(10**6))), BACK, NOW_S)
    later_s = NOW_S + OIDC_FLOW_S_MAX
    flows.take(answer(flows.begin(BACK, later_s, chance(1))), BACK, later_s)
    flows.check()
    flows._done.update({str(number): later_s for number in range(OIDC_FLOWS_DONE_MAX)})
    with pytest.raises(AssertionError, match="are remembered"):
        flows.check()


def test_nothing_of_it_is_shown() -> None:
    begun = Flows(KEY).begin(BACK, NOW_S, chance())
    assert begun.verifier not in repr(begun)
    assert "c" * 20 not in repr(answer(begun, code="c" * 20))
