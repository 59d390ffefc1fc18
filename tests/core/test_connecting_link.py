"""The end of a link that says hello: what it proves, and whom it believes."""

import pytest
from tests.core.link_ends import HELLO_MS, TIMES, client, ended

from moorline.core.connecting_link import ConnectingLink
from moorline.core.effects import Event, SetTimer
from moorline.core.link import Established, HelloHeard, Opened, SayHello, WelcomeHeard
from moorline.core.proof import (
    ChallengeHeard,
    HearOn,
    MakeProof,
    ProofFailed,
    ProofMade,
    SayResponse,
)
from moorline.limits import PROOF_ROUNDS_MAX


def test_a_client_with_credentials_makes_a_proof_before_its_hello() -> None:
    link = client()
    assert link.handle(Opened(), 0) == [SetTimer("hello", HELLO_MS), MakeProof(None)]
    assert link.handle(ProofMade(b"p"), 1) == [SayHello(1, 1, "password", b"p"), HearOn()]
    assert link.handle(ChallengeHeard(b"c"), 2) == [MakeProof(b"c")]
    assert link.handle(ProofMade(b"r"), 3) == [SayResponse(b"r"), HearOn()]
    assert Established(1) in link.handle(WelcomeHeard(1, 7_000), 4)


def test_a_client_without_credentials_is_asked_for_nothing() -> None:
    link = ConnectingLink("client's end", mechanism="", **TIMES)
    assert link.handle(Opened(), 0) == [SetTimer("hello", HELLO_MS), SayHello(1, 1)]
    assert ended(link.handle(ChallengeHeard(b"c"), 1))[0] == "MALFORMED"


def test_a_welcome_of_a_node_that_has_not_proved_itself_is_not_taken() -> None:
    link = client()
    link.handle(Opened(), 0)
    link.handle(ProofMade(b"p", is_content=False), 1)
    code, text, say = ended(link.handle(WelcomeHeard(1, 1), 2))
    assert (code, text, say) == ("AUTH", "the node has not proved who it is", True)


def test_why_credentials_fail_is_not_told_to_the_node() -> None:
    link = client()
    link.handle(Opened(), 0)
    link.handle(ProofMade(b"p"), 1)
    link.handle(ChallengeHeard(b"c"), 2)
    assert ended(link.handle(ProofFailed("no file /home/olga/key"), 3)) == (
        "AUTH",
        "no file /home/olga/key",
        False,
    )


def test_a_node_that_asks_for_ever_is_left() -> None:
    link = client()
    link.handle(Opened(), 0)
    link.handle(ProofMade(b"p"), 1)
    for _ in range(PROOF_ROUNDS_MAX):
        assert link.handle(ChallengeHeard(b"c"), 2) == [MakeProof(b"c")]
        link.handle(ProofMade(b"r"), 3)
    assert ended(link.handle(ChallengeHeard(b"c"), 4))[0] == "AUTH"


@pytest.mark.parametrize("event", [WelcomeHeard(1, 1), ChallengeHeard(b"c"), HelloHeard(1, 1)])
def test_what_comes_while_a_proof_is_made_ends_the_link(event: Event) -> None:
    link = client()
    link.handle(Opened(), 0)
    assert ended(link.handle(event, 1))[0] == "MALFORMED"
    assert link.handle(ProofMade(b"p"), 2) == []


@pytest.mark.parametrize(
    ("broken", "name", "value"), [("Y1", "_is_making", True), ("Y2", "_is_content", False)]
)
def test_a_broken_state_is_found_and_tells_the_story(broken: str, name: str, value: object) -> None:
    link = ConnectingLink("client's end", mechanism="", **TIMES)
    link.handle(Opened(), 0)
    link.handle(WelcomeHeard(1, 7_000), 2)
    link.check()
    setattr(link, name, value)
    with pytest.raises(AssertionError, match=broken) as caught:
        link.check()
    assert "story of" in str(caught.value)
