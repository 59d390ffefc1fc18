"""Operators' calls from seeds: whatever stops at any step, what they were told is what happened.

`make sim` runs the same for minutes.
"""

from collections.abc import Callable

import pytest
from tests.core.group.operator_simulation import operated, operated_queue, stopped
from tests.core.group.operator_world import AskOver, OperatorWorld, Start, TicketCatalog

from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.group.operation import (
    CloseTicket,
    Hindrance,
    Operation,
    OperationState,
    Outcome,
)
from moorline.core.stream import Shard
from moorline.testing import SimulationFailed

pytestmark = pytest.mark.slow

KINDS = ("seek", "kick", "change", "delete")


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 10))]
)
def test_operators_of_a_shared_group(seed: int) -> None:
    operated(seed)


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_operators_of_a_queue(seed: int) -> None:
    operated_queue(seed)


@pytest.mark.parametrize("who", ["leader", "asked", "catalog"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_stops_at_some_step_of_a_call(kind: str, who: str) -> None:
    for after in (2, 9, 17):
        stopped(after, kind=kind, who=who, after=after)


def test_all_outcomes_are_met() -> None:
    """A proof over nothing would be none: calls are done, fail, and are left open."""
    answers = operated(2).operators.answers + operated(3).operators.answers
    assert {outcome for _, outcome in answers} == set(Outcome)
    assert {kind for kind, outcome in answers if outcome is Outcome.DONE} == set(KINDS)


# --- mistakes that it finds -----------------------------------------------------------------------


def found(run: Callable[[int], object], rule: str, likely: int = 0) -> bool:
    """Whether one of some seeds finds it; the one that does so today is tried first."""
    for seed in (likely, *range(60)):
        try:
            run(seed)
        except SimulationFailed as failure:
            if rule in str(failure):
                return True
    return False


def test_an_effect_of_a_call_that_was_withdrawn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def can_take(_: TicketCatalog, world: OperatorWorld, ask: AskOver, _now_ms: int) -> bool:
        row = world.tickets.get(ask.ticket)
        is_led = (ask.group, ask.epoch) == (world.group, world.epoch)
        return is_led and (row is None or not row.is_done)

    monkeypatch.setattr(TicketCatalog, "can_take", can_take)
    assert found(operated, "I15: a call that was answered as failed has an effect", likely=29)


def test_a_failure_that_is_told_before_the_ticket_is_withdrawn_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settle(self: Operation, error: Hindrance | None) -> list[Effect]:
        self.move(OperationState.SETTLING)
        return [CloseTicket(self._ticket), *self._answer(Outcome.FAILED, error)]

    monkeypatch.setattr(Operation, "_settle", settle)
    assert found(operated, "I15")


def test_half_a_seek_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OperatorWorld.move

    def half(self: OperatorWorld, cursors: dict[Shard, Cursor], start: Start) -> None:
        before = {
            shard: cursor for shard, cursor in self.cursors.items() if shard.home in self.away
        }
        whole(self, cursors, start)
        self.cursors = before | self.cursors

    monkeypatch.setattr(OperatorWorld, "move", half)
    assert found(operated, "I17")


def test_a_seek_that_the_leader_before_can_undo_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OperatorWorld.move

    def same_epoch(self: OperatorWorld, cursors: dict[Shard, Cursor], start: Start) -> None:
        epoch = self.epoch
        whole(self, cursors, start)
        self.epoch = epoch

    monkeypatch.setattr(OperatorWorld, "move", same_epoch)
    assert found(operated, "I17")


# --- seeds that found a mistake -------------------------------------------------------------------


def test_seed_14_an_offset_beyond_the_end_of_streams_that_are_away() -> None:
    """What was published between the seek and the return of a node was passed over."""
    operated_queue(14)
