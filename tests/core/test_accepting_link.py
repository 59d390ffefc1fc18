"""The end of a link that waits for a hello: nothing before an acceptance, and every round is bounded."""

import pytest
from tests.core.link_ends import HELLO_MS, TIMES, ended, node

from moorline.core.accepting_link import AcceptingLink
from moorline.core.effects import Event, SetTimer, TimerFired
from moorline.core.link import (
    SAID,
    VERSION_MAX,
    Established,
    HelloHeard,
    LinkState,
    Opened,
    SayWelcome,
    WelcomeHeard,
)
from moorline.core.proof import (
    ChallengeHeard,
    CheckProof,
    HearOn,
    ProofAccepted,
    ProofContinues,
    ProofRefused,
    ResponseHeard,
    SayChallenge,
)
from moorline.errors import MachineError
from moorline.limits import PROOF_ROUNDS_MAX, PROOF_TIMER_MS_MAX


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


@pytest.mark.parametrize(
    ("broken", "name", "value"),
    [
        ("Y1", "_is_checking", True),
        ("Y2", "_is_accepted", False),
        ("Y2", "_version", 0),
        ("Y2", "_version", VERSION_MAX + 1),
        ("Y2", "mechanism", "guess"),
    ],
)
def test_a_broken_state_is_found_and_tells_the_story(broken: str, name: str, value: object) -> None:
    link = AcceptingLink("node's end", mechanisms=(), **TIMES)
    link.handle(Opened(), 0)
    link.handle(HelloHeard(1, 1), 1)
    link.handle(ProofAccepted(), 1)
    link.check()
    setattr(link, name, value)
    with pytest.raises(AssertionError, match=broken) as caught:
        link.check()
    assert "story of" in str(caught.value)


def test_y1_nothing_is_checked_before_a_hello() -> None:
    link = node()
    link._is_checking = True
    with pytest.raises(AssertionError, match="Y1"):
        link.check()
