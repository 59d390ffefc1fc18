"""Room: core/group. One call of an operator, at the node that it was given to, until it can be answered.

    OPENING    a ticket is written down in the catalog
    FINDING    who leads the group?
    ASKING     the Leader is asked; it takes the ticket with the effect
    SETTLING   the Leader refused, or said nothing in time: the ticket is withdrawn
    ANSWERED

A Leader that is stopped may wake at any time and go on with what it was asked. So a call is never answered as
failed because somebody was silent: only when its ticket was withdrawn, and was not taken before.

Invariants, looked at by `check`:

    O1  nobody is asked without a ticket: what is done without one could not be told from what is not
    O2  a reason is kept only from the withdrawal on; before that nothing has gone wrong for certain
    O3  a deadline runs exactly while a Leader is asked

Design: docs/design/groups.md.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine

DEADLINE_TIMER = "deadline"

Hindrance = Exception | str
"""What stood in the way: an error to be raised as it is, or words for the operator."""


class OperationState(Enum):
    OPENING = "opening"
    FINDING = "finding"
    ASKING = "asking"
    SETTLING = "settling"
    ANSWERED = "answered"


class Outcome(Enum):
    DONE = "done"
    FAILED = "failed"
    """Not done, and never will be."""
    UNKNOWN = "unknown"


# --- what it hears --------------------------------------------------------------------------------


class Begun(Event, frozen=True):
    """The operator asks."""


class TicketOpened(Event, frozen=True):
    ticket: int


class LeaderFound(Event, frozen=True):
    """It is led on that node, under that epoch."""

    node: str
    epoch: int


class LeaderDid(Event, frozen=True):
    """The Leader says that it is done."""


class LeaderFailed(Event, frozen=True):
    """The Leader says why not, or cannot be reached; it may have done it all the same."""

    error: Hindrance


class Settled(Event, frozen=True):
    """The ticket is withdrawn. `is_taken`: it was taken before; None: nobody knows."""

    is_taken: bool | None


class StepFailed(Event, frozen=True):
    """The ticket, the Leader's name or the withdrawal could not be had."""

    error: Hindrance


# --- what it asks for -----------------------------------------------------------------------------


class OpenTicket(Effect, frozen=True):
    """Answered by `TicketOpened` or `StepFailed`."""


class FindLeader(Effect, frozen=True):
    """Answered by `LeaderFound` or `StepFailed`."""


class Ask(Effect, frozen=True):
    """Answered by `LeaderDid` or `LeaderFailed`, or not at all."""

    ticket: int
    node: str
    epoch: int


class Withdraw(Effect, frozen=True):
    """Answered by `Settled` or `StepFailed`."""

    ticket: int


class CloseTicket(Effect, frozen=True):
    """Nobody needs it any more; if it stays, it is forgotten in time."""

    ticket: int


class AnswerOperator(Effect, frozen=True):
    """`error` is what stood in the way; None where it was only time."""

    outcome: Outcome
    error: Hindrance | None = None


class Operation(Machine[OperationState]):
    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        OperationState.OPENING: frozenset({OperationState.FINDING, OperationState.ANSWERED}),
        OperationState.FINDING: frozenset({OperationState.ASKING, OperationState.ANSWERED}),
        OperationState.ASKING: frozenset({OperationState.SETTLING, OperationState.ANSWERED}),
        OperationState.SETTLING: frozenset({OperationState.ANSWERED}),
        OperationState.ANSWERED: frozenset(),
    }

    def __init__(self, name: str, *, within_ms: int, is_stored: bool) -> None:
        """`is_stored`: the effect is in the transaction that takes the ticket, and does not follow it."""
        super().__init__(name, OperationState.OPENING)
        self._within_ms = within_ms
        self._is_stored = is_stored
        self._ticket = 0
        self._error: Hindrance | None = None
        self._has_deadline = False

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match self.state, event:
            case OperationState.OPENING, Begun():
                return [OpenTicket()]
            case OperationState.OPENING, TicketOpened(ticket):
                # Written down before a Leader is looked for: whoever is asked from here on can be stopped.
                self._ticket = ticket
                self.move(OperationState.FINDING)
                return [FindLeader()]
            case OperationState.OPENING, StepFailed(error):
                # If there is a ticket, nobody knows its number.
                return self._answer(Outcome.FAILED, error)
            case OperationState.FINDING, LeaderFound(node, epoch):
                self.move(OperationState.ASKING)
                self._has_deadline = True
                # The timer first: an asking that fails at once must find it to be cancelled.
                return [
                    SetTimer(DEADLINE_TIMER, self._within_ms),
                    Ask(self._ticket, node, epoch),
                ]
            case OperationState.FINDING, StepFailed(error):
                # Nobody was asked yet.
                return [CloseTicket(self._ticket), *self._answer(Outcome.FAILED, error)]
            case OperationState.ASKING, LeaderFailed(error):
                return self._settle(error)
            case OperationState.ASKING, TimerFired(name) if name == DEADLINE_TIMER:
                return self._settle(None)
            # Also while the ticket is withdrawn: that it was done is certain, whatever the catalog will say.
            case ((OperationState.ASKING | OperationState.SETTLING), LeaderDid()):
                return [CloseTicket(self._ticket), *self._answer(Outcome.DONE)]
            case OperationState.SETTLING, Settled(is_taken):
                return self._answer(self._outcome(is_taken), self._error)
            case OperationState.SETTLING, StepFailed(error):
                # The catalog is away: the Leader may take the ticket yet, or may have.
                return self._answer(Outcome.UNKNOWN, error)
            case _:
                # A refusal that comes while the ticket is withdrawn says nothing: the ticket knows.
                return []

    def _settle(self, error: Hindrance | None) -> list[Effect]:
        self._error = error
        self._has_deadline = False
        self.move(OperationState.SETTLING)
        return [CancelTimer(DEADLINE_TIMER), Withdraw(self._ticket)]

    def _outcome(self, is_taken: bool | None) -> Outcome:
        if is_taken is None:
            return Outcome.UNKNOWN
        if not is_taken:
            return Outcome.FAILED
        # Whoever took it may have ended before the effect that should follow.
        return Outcome.DONE if self._is_stored else Outcome.UNKNOWN

    def _answer(self, outcome: Outcome, error: Hindrance | None = None) -> list[Effect]:
        self._has_deadline = False
        self.move(OperationState.ANSWERED)
        return [CancelTimer(DEADLINE_TIMER), AnswerOperator(outcome, error)]

    def invariants(self) -> None:
        state = self.state
        if state is OperationState.OPENING:
            assert not self._ticket, f"O1: ticket {self._ticket} before it was opened"
        elif state is not OperationState.ANSWERED:
            assert self._ticket, f"O1: {state.name} without a ticket"
        is_settled = state in (OperationState.SETTLING, OperationState.ANSWERED)
        assert is_settled or self._error is None, f"O2: {self._error} in {state.name}"
        is_asking = state is OperationState.ASKING
        assert self._has_deadline == is_asking, f"O3: {state.name}, deadline {self._has_deadline}"
