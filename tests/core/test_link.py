"""The two ends of a link, as plain Python: build, handle, compare effects."""

from collections.abc import Callable
from pathlib import Path

import pytest

from moorline.core.accepting_link import AcceptingLink
from moorline.core.connecting_link import ConnectingLink
from moorline.core.effects import CancelTimer, Effect, SetTimer, TimerFired
from moorline.core.link import (
    VERSION_MAX,
    VERSION_MIN,
    CheckSilence,
    EndLink,
    Established,
    GoodbyeHeard,
    HelloHeard,
    Link,
    LinkState,
    Opened,
    SayHello,
    SayPing,
    SayWelcome,
    SilentFor,
    WelcomeHeard,
)
from moorline.core.machine import diagram
from moorline.core.proof import CheckProof, HearOn, ProofAccepted
from moorline.limits import PROOF_ROUNDS_MAX

HELLO_MS, KEEPALIVE_MS = 500, 1_000


def accepting() -> AcceptingLink:
    return AcceptingLink("node's end", hello_timeout_ms=HELLO_MS, keepalive_ms=KEEPALIVE_MS)


def connecting() -> ConnectingLink:
    return ConnectingLink("client's end", hello_timeout_ms=HELLO_MS, keepalive_ms=KEEPALIVE_MS)


def opened() -> AcceptingLink:
    link = accepting()
    link.handle(Opened(), 0)
    link.handle(HelloHeard(1, 1), 1)
    link.handle(ProofAccepted(), 1)
    return link


def welcomed() -> ConnectingLink:
    link = connecting()
    link.handle(Opened(), 0)
    link.handle(WelcomeHeard(1, 7_000), 2)
    return link


def end(code: str, *, say: bool, effects: list[Effect]) -> bool:
    ends = [effect for effect in effects if isinstance(effect, EndLink)]
    return [(found.code, found.say) for found in ends] == [(code, say)]


def test_a_hello_opens_the_node_end() -> None:
    link = accepting()
    assert link.handle(Opened(), 0) == [SetTimer("hello", HELLO_MS)]
    assert link.handle(HelloHeard(1, 1), 3) == [CheckProof("", b"")], "by what its transport proved"
    assert link.state.name == "AUTHENTICATING"
    assert link.handle(ProofAccepted(), 3) == [
        SayWelcome(1, KEEPALIVE_MS),
        CancelTimer("hello"),
        SetTimer("keepalive", KEEPALIVE_MS),
        Established(1),
        HearOn(),
    ]
    assert link.state is LinkState.OPEN


def test_a_welcome_opens_the_client_end_with_the_nodes_keepalive() -> None:
    link = connecting()
    assert SayHello(VERSION_MIN, VERSION_MAX) in link.handle(Opened(), 0)
    effects = link.handle(WelcomeHeard(1, 7_000), 2)
    assert SetTimer("keepalive", 7_000) in effects
    assert link.state is LinkState.OPEN


@pytest.mark.parametrize("make", [accepting, connecting])
def test_no_greeting_in_time_ends_the_link(make: object) -> None:
    link = make()  # type: ignore[operator]
    link.handle(Opened(), 0)
    assert end("HELLO_TIMEOUT", say=True, effects=link.handle(TimerFired("hello"), HELLO_MS))


@pytest.mark.parametrize("versions", [(0, 0), (VERSION_MAX + 1, VERSION_MAX + 5)])
def test_no_common_version_is_said(versions: tuple[int, int]) -> None:
    link = accepting()
    link.handle(Opened(), 0)
    assert end("VERSION", say=True, effects=link.handle(HelloHeard(*versions), 1))


def test_a_newer_peer_that_still_speaks_ours_is_welcome() -> None:
    link = accepting()
    link.handle(Opened(), 0)
    link.handle(HelloHeard(1, 900), 1)
    assert SayWelcome(VERSION_MAX, KEEPALIVE_MS) in link.handle(ProofAccepted(), 1)


def test_a_second_hello_ends_the_link() -> None:
    assert end("MALFORMED", say=True, effects=opened().handle(HelloHeard(1, 1), 5))


def test_silence_is_asked_about_once_and_then_ends_the_link() -> None:
    link = opened()
    assert link.handle(TimerFired("keepalive"), 1_000) == [CheckSilence()]
    assert link.handle(SilentFor(400), 1_000) == [SetTimer("keepalive", 600)]
    assert link.handle(SilentFor(1_000), 1_600) == [SayPing(), SetTimer("keepalive", 1_000)]
    assert end("SILENT", say=False, effects=link.handle(SilentFor(2_000), 2_600))


def test_a_goodbye_is_not_answered() -> None:
    assert end("DONE", say=False, effects=opened().handle(GoodbyeHeard("DONE", ""), 9))


@pytest.mark.parametrize("broken", ["Y3", "Y4"])
@pytest.mark.parametrize("make", [opened, welcomed])
def test_a_broken_state_is_found_and_tells_the_story(
    broken: str, make: Callable[[], AcceptingLink | ConnectingLink]
) -> None:
    link = make()
    link.check()
    if broken == "Y3":
        link._rounds = PROOF_ROUNDS_MAX + 1
    else:
        link.is_wrapped = True
    with pytest.raises(AssertionError, match=broken) as caught:
        link.check()
    assert "story of" in str(caught.value)


def test_the_document_draws_the_moves_of_the_map() -> None:
    document = (Path(__file__).parents[2] / "docs/design/wire.md").read_text()
    for move in diagram(Link).splitlines()[1:]:
        assert move.strip() in document
