"""Proofs of who a client is, at both ends of a link: nothing before an acceptance, and nothing shown."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.core.link_ends import TIMES, client, node

from moorline.core.accepting_link import AcceptingLink
from moorline.core.effects import TimerFired
from moorline.core.link import (
    BadBytes,
    EndLink,
    Established,
    GoodbyeHeard,
    HelloHeard,
    Link,
    LinkLost,
    LinkState,
    Opened,
    SayHello,
    SayWelcome,
    SilentFor,
    WelcomeHeard,
)
from moorline.core.proof import (
    ChallengeHeard,
    CheckProof,
    HearOn,
    MakeProof,
    ProofAccepted,
    ProofContinues,
    ProofFailed,
    ProofMade,
    ProofRefused,
    ResponseHeard,
    SayChallenge,
    SayResponse,
)


def test_no_story_shows_a_proof() -> None:
    link = node("password")
    link.handle(HelloHeard(1, 1, "password", b"secret"), 1)
    link.handle(ProofContinues(b"secret"), 2)
    link.handle(ResponseHeard(b"secret"), 3)
    assert "secret" not in link.story()
    assert "proof=<6 bytes>" in link.story()
    shown = [
        SayHello(1, 1, "password", b"secret"),
        SayChallenge(b"secret"),
        SayResponse(b"secret"),
        CheckProof("password", b"secret"),
        MakeProof(b"secret"),
        ProofMade(b"secret"),
        ChallengeHeard(b"secret"),
    ]
    assert "secret" not in repr(shown)


# --- whatever comes -------------------------------------------------------------------------------

proofs = st.binary(max_size=3)
heard = st.one_of(
    st.just(Opened()),
    st.builds(HelloHeard, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", "a", "b"])),
    st.builds(WelcomeHeard, st.integers(0, 3), st.integers(1, 9)),
    st.builds(ChallengeHeard, proofs),
    st.builds(ResponseHeard, proofs),
    st.builds(SilentFor, st.integers(0, 5_000)),
    st.sampled_from([TimerFired("hello"), TimerFired("keepalive")]),
    st.just(BadBytes("MALFORMED", "x")),
    st.just(GoodbyeHeard("DONE", "x")),
    st.just(LinkLost()),
)
verdicts = st.one_of(
    st.builds(ProofAccepted, st.sampled_from(["", "olga"]), st.none() | st.integers(-1, 99)),
    st.builds(ProofContinues, proofs),
    st.builds(ProofRefused, st.just("no")),
)
makings = st.one_of(
    st.builds(ProofMade, proofs, st.booleans()), st.builds(ProofFailed, st.just("no"))
)


@given(st.booleans(), st.data())
def test_whatever_comes_a_link_opens_only_behind_an_acceptance_and_ends_once(
    at_node: bool, data: st.DataObject
) -> None:
    link: Link = AcceptingLink("n", mechanisms=("a",), **TIMES) if at_node else client("a")
    ends, asked, accepted = 0, 0, False
    for now in range(20):
        was = link.state
        answers = (verdicts if at_node else makings) if asked else st.nothing()
        event: Any = data.draw(heard | answers)
        if isinstance(event, Opened) and now:
            continue  # a socket opens once
        effects = link.handle(event, now)
        link.check()
        if isinstance(
            event, ProofAccepted | ProofContinues | ProofRefused | ProofMade | ProofFailed
        ):
            asked -= 1
            accepted = isinstance(event, ProofAccepted)
        asked += sum(isinstance(effect, CheckProof | MakeProof) for effect in effects)
        ends += sum(isinstance(effect, EndLink) for effect in effects)
        assert asked <= 1, "at most one is under way"
        assert not (was is LinkState.CLOSED and effects)
        if at_node and was is not LinkState.OPEN and link.state is LinkState.OPEN:
            assert accepted
        if at_node and any(isinstance(effect, SayWelcome | Established) for effect in effects):
            assert isinstance(event, ProofAccepted)
        if any(isinstance(effect, HearOn) for effect in effects):
            assert not asked
    assert ends == (1 if link.state is LinkState.CLOSED else 0)
