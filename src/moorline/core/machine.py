"""Room: core. The shape that all machines share.

    effects = machine.handle(event, now_ms)

A machine has one state out of an `Enum` and a map of the moves it may make (`moves`). It keeps the
last events it met, its *story*. An assertion that fails inside, or a move that the map does not
know, is a mistake of ours and comes out as a `MachineError` that tells the story.

Between two steps `check()` looks at what the moves cannot say: the machine's invariants, each with a short
name that its module explains (B1, L2). Simulations call it after every step.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from moorline.core.effects import Effect, Event
from moorline.errors import MachineError
from moorline.limits import STORY_EVENTS_MAX

State = TypeVar("State", bound=Enum)


class Machine(Generic[State]):
    """Base of every machine: subclasses give `moves`, a first state, and `step`."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]]

    def __init__(self, name: str, state: State) -> None:
        self.name = name
        self.state = state
        """Changed by `move` alone; a field, for it is asked for every message."""
        self._story: deque[tuple[int, str, Event]] = deque(maxlen=STORY_EVENTS_MAX)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes one event at one time; returns what is to be done, in order."""
        # Before the step, so that the event that broke it is the last of the story.
        self._story.append((now_ms, self.state.name, event))
        try:
            # Only assertions become stories: an error that comes from outside has its own words for whoever
            # caused it.
            return self.step(event, now_ms)
        except AssertionError as error:
            raise MachineError(f"{self.name}: {error}\n{self.story()}") from error

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        raise NotImplementedError

    def check(self) -> None:
        """Asserts the invariants, and tells the story of one that is broken.

        Not done by `handle`: some of them look at all that the machine knows, and no step may cost that.
        """
        try:
            self.invariants()
        except AssertionError as error:
            raise AssertionError(f"{self.name}: {error}\n{self.story()}") from error

    def invariants(self) -> None:
        """Asserts them, one by one; one that has no more than its map of moves has none to add."""

    def move(self, state: State) -> None:
        """Changes the state; staying is always allowed, other moves only if the map knows them."""
        if state is self.state:
            return
        allowed = self.moves.get(self.state, frozenset())
        assert state in allowed, f"no move from {self.state.name} to {state.name}"
        self.state = state

    def story(self) -> str:
        """The last events, oldest first, as a reader wants them under an error."""
        lines = [f"  {now_ms:>8} ms  {state:<18} {event}" for now_ms, state, event in self._story]
        return "\n".join([f"story of {self.name}, oldest first:", *lines])


def diagram(machine: type[Machine[State]]) -> str:
    """The map of moves as Mermaid text: the documents' diagrams are made by this."""
    lines = ["stateDiagram-v2"]
    for state, following in machine.moves.items():
        lines += [f"    {state.name} --> {after.name}" for after in sorted(following, key=str)]
    return "\n".join(lines)
