"""One call of an operator: what it is answered with, whatever becomes of its Leader and the catalog."""

import pytest

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.group.operation import (
    DEADLINE_TIMER,
    AnswerOperator,
    Ask,
    Begun,
    CloseTicket,
    FindLeader,
    LeaderDid,
    LeaderFailed,
    LeaderFound,
    OpenTicket,
    Operation,
    OperationState,
    Outcome,
    Settled,
    StepFailed,
    TicketOpened,
    Withdraw,
)

WITHIN_MS = 500
TICKET = 7


def asking(*, is_stored: bool = True) -> Operation:
    """A call that its Leader was asked for."""
    operation = Operation("delete", within_ms=WITHIN_MS, is_stored=is_stored)
    assert operation.handle(Begun(), 0) == [OpenTicket()]
    assert operation.handle(TicketOpened(TICKET), 1) == [FindLeader()]
    assert operation.handle(LeaderFound("n1", 3), 2) == [
        SetTimer(DEADLINE_TIMER, WITHIN_MS),
        Ask(TICKET, "n1", 3),
    ]
    return operation


def settling(*, is_stored: bool = True) -> Operation:
    """A call whose Leader said nothing."""
    operation = asking(is_stored=is_stored)
    effects = operation.handle(TimerFired(DEADLINE_TIMER), 2 + WITHIN_MS)
    assert effects == [CancelTimer(DEADLINE_TIMER), Withdraw(TICKET)]
    return operation


def answers(effects: list[Effect]) -> list[AnswerOperator]:
    return [effect for effect in effects if isinstance(effect, AnswerOperator)]


def test_a_leader_that_did_it_is_believed() -> None:
    effects = asking().handle(LeaderDid(), 3)
    assert answers(effects) == [AnswerOperator(Outcome.DONE)]
    assert CloseTicket(TICKET) in effects


@pytest.mark.parametrize(
    ("is_taken", "outcome"),
    [(False, Outcome.FAILED), (True, Outcome.DONE), (None, Outcome.UNKNOWN)],
)
def test_where_the_leader_says_nothing_the_ticket_knows(
    is_taken: bool | None, outcome: Outcome
) -> None:
    assert answers(settling().handle(Settled(is_taken), 9)) == [AnswerOperator(outcome)]


def test_a_refusal_is_told_when_the_ticket_is_withdrawn_and_not_before() -> None:
    operation = asking()
    assert Withdraw(TICKET) in operation.handle(LeaderFailed("no"), 3)
    assert answers(operation.handle(Settled(False), 4)) == [AnswerOperator(Outcome.FAILED, "no")]


def test_a_leader_that_lost_its_catalog_after_the_effect_did_it() -> None:
    operation = asking()
    operation.handle(LeaderFailed("the catalog is gone"), 3)
    (answer,) = answers(operation.handle(Settled(True), 4))
    assert answer.outcome is Outcome.DONE


def test_an_effect_that_only_follows_the_ticket_may_not_have_come() -> None:
    (answer,) = answers(settling(is_stored=False).handle(Settled(True), 9))
    assert answer.outcome is Outcome.UNKNOWN


def test_without_the_catalog_nobody_knows() -> None:
    assert answers(settling().handle(StepFailed("gone"), 9)) == [
        AnswerOperator(Outcome.UNKNOWN, "gone")
    ]


def test_a_late_word_of_the_leader_counts_if_it_says_done() -> None:
    operation = settling()
    assert operation.handle(LeaderFailed("fenced"), 9) == []
    assert operation.state is OperationState.SETTLING
    assert answers(operation.handle(LeaderDid(), 10)) == [AnswerOperator(Outcome.DONE)]
    assert operation.handle(Settled(False), 11) == [], "it is answered once"


@pytest.mark.parametrize("found", [False, True])
def test_what_fails_before_anybody_was_asked_is_not_done(found: bool) -> None:
    operation = Operation("delete", within_ms=WITHIN_MS, is_stored=True)
    operation.handle(Begun(), 0)
    if found:
        operation.handle(TicketOpened(TICKET), 1)
    effects = operation.handle(StepFailed("gone"), 2)
    assert answers(effects) == [AnswerOperator(Outcome.FAILED, "gone")]
    assert (CloseTicket(TICKET) in effects) is found


def test_an_answer_is_the_last_word() -> None:
    operation = asking()
    operation.handle(LeaderDid(), 3)
    late: list[Event] = [
        LeaderFailed("x"),
        TimerFired(DEADLINE_TIMER),
        Settled(None),
        StepFailed("x"),
        LeaderDid(),
    ]
    for event in late:
        assert operation.handle(event, 9) == []


@pytest.mark.parametrize("broken", ["O1", "O2", "O3"])
def test_a_broken_state_is_found_and_tells_the_story(broken: str) -> None:
    operation = asking()
    operation.check()
    match broken:
        case "O1":
            operation._ticket = 0
        case "O2":
            operation._error = "nothing went wrong yet"
        case _:
            operation._has_deadline = False
    with pytest.raises(AssertionError, match=broken) as caught:
        operation.check()
    assert "story of delete" in str(caught.value)
