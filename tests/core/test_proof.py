"""Proofs of who a client is, at both ends of a link: rounds, bounds, and nothing before an acceptance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.effects import Effect, Event, SetTimer, TimerFired
from moorline.core.link import (
    SAID,
    AcceptingLink,
    BadBytes,
    ConnectingLink,
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
from moorline.errors import MachineError
from moorline.limits import PROOF_ROUNDS_MAX, PROOF_TIMER_MS_MAX

HELLO_MS, KEEPALIVE_MS = 500, 1_000
TIMES = {"hello_timeout_ms": HELLO_MS, "keepalive_ms": KEEPALIVE_MS}


def node(*mechanisms: str) -> AcceptingLink:
    link = AcceptingLink("node's end", mechanisms=mechanisms, **TIMES)
    link.handle(Opened(), 0)
    return link


def client(mechanism: str = "password") -> ConnectingLink:
    return ConnectingLink("client's end", mechanism=mechanism, **TIMES)


def ended(effects: list[Effect]) -> tuple[str, str, bool]:
    (end,) = (effect for effect in effects if isinstance(effect, EndLink))
    return end.code, end.text, end.say


# --- the node -------------------------------------------------------------------------------------


def test_a_proof_is_checked_before_the_welcome() -> None:
    link = node("password")
    assert link.handle(HelloHeard(1, 1, "password", b"p"), 1) == [CheckProof("password", b"p")]
    effects = link.handle(ProofAccepted("olga"), 2)
    assert isinstance(effects[0], SayWelcome)
    assert Established(1, "olga") in effects
    assert effects[-1] == HearOn()
    assert link.state is LinkState.OPEN


def test_rounds_go_on_until_the_authenticator_is_content() -> None:
    link = node("kerberos")
    link.handle(HelloHeard(1, 1, "kerberos", b"0"), 1)
    for number in range(PROOF_ROUNDS_MAX):
        challenge = b"challenge %d" % number
        said = link.handle(ProofContinues(challenge), 2)
        assert said == [SayChallenge(challenge), HearOn()]
        answer = b"response %d" % number
        assert link.handle(ResponseHeard(answer), 3) == [CheckProof("kerberos", answer)]
    assert link.state is LinkState.AUTHENTICATING
    code, _, say = ended(link.handle(ProofContinues(b"one more"), 4))
    assert (code, say) == ("AUTH", True)


@pytest.mark.parametrize(
    ("taken", "named", "says"),
    [
        (("kerberos", "token"), "password", "it takes kerberos, token"),
        ((), "password", "it takes no proofs"),
        (("password",), "PASSWORD", "it takes password"),
    ],
)
def test_no_mechanism_is_taken_but_those_that_are_named(
    taken: tuple[str, ...], named: str, says: str
) -> None:
    """A weaker one ends the link before anybody looks at its proof."""
    link = node(*taken)
    effects = link.handle(HelloHeard(1, 1, named, b"p"), 1)
    code, text, say = ended(effects)
    assert (code, say) == ("AUTH", True)
    assert text.endswith(says)
    assert not any(isinstance(effect, CheckProof) for effect in effects)


def test_a_refusal_is_told_in_its_own_words_and_nothing_else() -> None:
    link = node("password")
    link.handle(HelloHeard(1, 1, "password", b"p"), 1)
    effects = link.handle(ProofRefused("wrong"), 2)
    assert ended(effects) == ("AUTH", "wrong", True)
    assert not any(isinstance(effect, SAID) for effect in effects)


@pytest.mark.parametrize(
    "event", [HelloHeard(1, 1), ResponseHeard(b"r"), ChallengeHeard(b"c"), WelcomeHeard(1, 1)]
)
def test_what_comes_while_a_proof_is_checked_ends_the_link(event: Event) -> None:
    """The shell does not let it through; if it did, this is what would come of it."""
    link = node("password")
    link.handle(HelloHeard(1, 1, "password", b"p"), 1)
    assert ended(link.handle(event, 2))[0] == "MALFORMED"
    assert link.handle(ProofAccepted("olga"), 3) == [], "too late"


def test_a_response_without_a_challenge_ends_the_link() -> None:
    assert ended(node("password").handle(ResponseHeard(b"r"), 1))[0] == "MALFORMED"
    link = node("password")
    link.handle(HelloHeard(1, 1, "password", b"p"), 1)
    link.handle(ProofAccepted("olga"), 2)
    assert ended(link.handle(ResponseHeard(b"r"), 3))[0] == "MALFORMED"


def test_one_timeout_is_for_the_whole_handshake() -> None:
    link = node("kerberos")
    link.handle(HelloHeard(1, 1, "kerberos", b"0"), 1)
    effects = link.handle(ProofContinues(b"1"), HELLO_MS - 1)
    assert not any(isinstance(effect, SetTimer) for effect in effects)
    code, text, say = ended(link.handle(TimerFired("hello"), HELLO_MS))
    assert (code, text, say) == ("HELLO_TIMEOUT", "no whole proof in time", True)
    assert link.handle(ResponseHeard(b"late"), HELLO_MS + 1) == []


def test_an_expired_proof_ends_the_session() -> None:
    link = node("token")
    link.handle(HelloHeard(1, 1, "token", b"t"), 100)
    effects = link.handle(ProofAccepted("olga", 5_000), 200)
    assert SetTimer("expiry", 5_000) in effects
    assert link.handle(TimerFired("expiry"), 5_199) == [SetTimer("expiry", 1)], (
        "a timer may be early"
    )
    code, _, say = ended(link.handle(TimerFired("expiry"), 5_200))
    assert (code, say) == ("EXPIRED", True)


def test_a_proof_that_has_expired_already_opens_nothing() -> None:
    link = node("token")
    link.handle(HelloHeard(1, 1, "token", b"t"), 100)
    effects = link.handle(ProofAccepted("olga", 0), 200)
    assert ended(effects)[0] == "AUTH"
    assert not any(isinstance(effect, SayWelcome | Established) for effect in effects)


def test_a_proof_for_a_very_long_time_is_looked_at_now_and_then() -> None:
    link = node("token")
    link.handle(HelloHeard(1, 1, "token", b"t"), 0)
    far_ms = 10 * PROOF_TIMER_MS_MAX
    assert SetTimer("expiry", PROOF_TIMER_MS_MAX) in link.handle(ProofAccepted("olga", far_ms), 0)
    assert link.handle(TimerFired("expiry"), PROOF_TIMER_MS_MAX) == [
        SetTimer("expiry", PROOF_TIMER_MS_MAX)
    ]
    assert ended(link.handle(TimerFired("expiry"), far_ms))[0] == "EXPIRED"


def test_a_verdict_that_nobody_asked_for_is_a_mistake_of_ours() -> None:
    with pytest.raises(MachineError, match="nobody asked for ProofAccepted"):
        node("password").handle(ProofAccepted("olga"), 1)


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


# --- the client -----------------------------------------------------------------------------------


def test_a_client_with_credentials_makes_a_proof_before_its_hello() -> None:
    link = client()
    assert link.handle(Opened(), 0) == [SetTimer("hello", HELLO_MS), MakeProof(None)]
    assert link.handle(ProofMade(b"p"), 1) == [SayHello(1, 1, "password", b"p"), HearOn()]
    assert link.handle(ChallengeHeard(b"c"), 2) == [MakeProof(b"c")]
    assert link.handle(ProofMade(b"r"), 3) == [SayResponse(b"r"), HearOn()]
    assert Established(1) in link.handle(WelcomeHeard(1, 7_000), 4)


def test_a_client_without_credentials_is_asked_for_nothing() -> None:
    link = client("")
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
