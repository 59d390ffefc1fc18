"""The shape of machines: moves are checked, errors tell the story."""

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest

from moorline.core.effects import Effect, Event, Send
from moorline.core.group.borrower import Borrower
from moorline.core.group.leader import Leader
from moorline.core.group.operation import Operation
from moorline.core.group.stream_lease import STATUS_MOVES
from moorline.core.link import Link
from moorline.core.machine import Machine, diagram
from moorline.errors import MachineError
from moorline.limits import STORY_EVENTS_MAX


class Door(Enum):
    CLOSED = "closed"
    OPEN = "open"
    GONE = "gone"


class Push(Event, frozen=True):
    to: Door


class DoorMachine(Machine[Door]):
    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        Door.CLOSED: frozenset({Door.OPEN}),
        Door.OPEN: frozenset({Door.CLOSED, Door.GONE}),
    }

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Push), f"unknown event {event}"
        self.move(event.to)
        return [Send("house", now_ms)]


def test_events_go_in_and_effects_come_out() -> None:
    door = DoorMachine("door", Door.CLOSED)
    assert door.handle(Push(Door.OPEN), 5) == [Send("house", 5)]
    assert door.state is Door.OPEN


def test_staying_is_always_allowed() -> None:
    door = DoorMachine("door", Door.CLOSED)
    door.handle(Push(Door.CLOSED), 1)
    assert door.state is Door.CLOSED


def test_a_move_that_the_map_does_not_know_tells_the_story() -> None:
    door = DoorMachine("front door", Door.CLOSED)
    door.handle(Push(Door.OPEN), 10)
    door.handle(Push(Door.CLOSED), 20)
    with pytest.raises(MachineError) as caught:
        door.handle(Push(Door.GONE), 30)
    text = str(caught.value)
    assert "front door: no move from CLOSED to GONE" in text
    assert text.index("10 ms") < text.index("20 ms") < text.index("30 ms")
    assert door.state is Door.CLOSED


def test_a_state_without_moves_is_an_end() -> None:
    door = DoorMachine("door", Door.GONE)
    with pytest.raises(MachineError, match="no move from GONE to OPEN"):
        door.handle(Push(Door.OPEN), 1)


def test_the_story_is_bounded() -> None:
    door = DoorMachine("door", Door.CLOSED)
    for now in range(10 * STORY_EVENTS_MAX):
        door.handle(Push(Door.CLOSED), now)
    assert len(door.story().splitlines()) == STORY_EVENTS_MAX + 1


def test_the_diagram_is_drawn_from_the_map() -> None:
    assert "OPEN --> GONE" in diagram(DoorMachine)
    drawn = diagram(Link)
    assert "AWAITING_HELLO --> AUTHENTICATING" in drawn
    assert "AWAITING_HELLO --> OPEN" not in drawn
    assert "CLOSED -->" not in drawn


def test_the_document_of_groups_draws_the_moves_of_the_maps_and_no_others() -> None:
    document = (Path(__file__).parents[2] / "docs/design/groups.md").read_text()
    diagrams = (diagram(Borrower), diagram(Leader), diagram(Operation))
    moves = [line for one in diagrams for line in one.splitlines()]
    for status, following in STATUS_MOVES.items():
        moves += [f"{status.name} --> {after.name}" for after in following]
    drawn = re.findall(r"^ +(\w+ --> \w+)", document, re.MULTILINE)
    assert sorted(drawn) == sorted(move.strip() for move in moves if "-->" in move)


class HeavyDoor(DoorMachine):
    """It may be open for one push at most."""

    is_wedged = False

    def invariants(self) -> None:
        assert not self.is_wedged, "Z1: it is wedged"


def test_a_check_that_fails_tells_the_story_and_a_step_does_not_pay_for_it() -> None:
    door = HeavyDoor("heavy door", Door.CLOSED)
    door.is_wedged = True
    door.handle(Push(Door.OPEN), 10)
    with pytest.raises(AssertionError) as caught:
        door.check()
    assert "heavy door: Z1: it is wedged" in str(caught.value)
    assert "10 ms  CLOSED" in str(caught.value)


def test_a_machine_without_invariants_of_its_own_is_always_sound() -> None:
    DoorMachine("door", Door.CLOSED).check()
