"""Room: core/directory. One batch of questions to a list of resolvers, until one of them has answered each.

    IDLE ─ Begin ─► CONNECTING ─ connected ─► ASKING ─ all answered ─► DONE
                      ▲  │ failed, members left      │ lost, refused, timer
                      │  └──────◄────────────────────┘
                      └─ pause over ─ PAUSING ◄─ round over ─┘     third round over ─► FAILED

Members are tried in an order of chance, the one that is connected before all others. A batch is cut into
parts, each a call with its own answer, or a walk over many pages. A resolver that hangs is left when nothing
came for `timer_ms`: each answer and each page starts that time anew, and nothing else does. Who has just
started and knows only a part says so: such a *weak* answer is kept, and the members that are left in the
round are asked for the rest of it.

Invariants:
C1  in a round each member is tried once at most
C2  a part that is answered is not asked for again
C3  a batch ends within 3 × members × timer and two pauses of silence
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar

from moorline.core.chance import Chance
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine
from moorline.limits import READ_PARTS_AT_ONCE, READ_PAUSE_MS_MAX, READ_PAUSE_MS_MIN, READ_ROUNDS


class ReadState(Enum):
    IDLE = "idle"
    CONNECTING = "connecting"
    ASKING = "asking"
    PAUSING = "pausing"
    DONE = "done"
    FAILED = "failed"


class Begin(Event, frozen=True):
    pass


class Connected(Event, frozen=True):
    """The member of this try says hello."""

    attempt: int


class Failed(Event, frozen=True):
    """The member of this try cannot be reached, is lost, or does not serve."""

    attempt: int
    why: str


class Answered(Event, frozen=True):
    """A part has its answer. A weak one lacks what a resolver that has just started does not know yet."""

    attempt: int
    part: int
    is_weak: bool = False


class Heard(Event, frozen=True):
    """A page of a part, with more behind it: whoever says that does not hang."""

    attempt: int


class Connect(Effect, frozen=True):
    member: int
    attempt: int


class Ask(Effect, frozen=True):
    """Ask the connected member for a part; where it has a weak answer, for what that lacks."""

    part: int
    attempt: int


class Leave(Effect, frozen=True):
    """The member of this try hangs: its connection is of no use to anybody."""

    member: int
    attempt: int


class Finish(Effect, frozen=True):
    """All parts are answered."""


class GiveUp(Effect, frozen=True):
    """Nobody answers: what each member said last."""

    whys: tuple[str, ...]


class ReadBatch(Machine[ReadState]):
    """One batch."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        ReadState.IDLE: frozenset({ReadState.CONNECTING, ReadState.DONE}),
        ReadState.CONNECTING: frozenset(
            {ReadState.ASKING, ReadState.PAUSING, ReadState.DONE, ReadState.FAILED}
        ),
        ReadState.ASKING: frozenset(
            {ReadState.CONNECTING, ReadState.PAUSING, ReadState.DONE, ReadState.FAILED}
        ),
        ReadState.PAUSING: frozenset({ReadState.CONNECTING}),
    }

    def __init__(
        self,
        name: str,
        members: int,
        parts: int,
        timer_ms: int,
        chance: Chance,
        connected: Sequence[int] = (),
    ) -> None:
        assert members > 0, "nobody to ask"
        super().__init__(name, ReadState.IDLE)
        self._members = members
        self._timer_ms = timer_ms
        self._chance = chance
        self._connected = set(connected)
        self._open = dict.fromkeys(range(parts))
        """Parts without an answer, in order."""
        self._weak: dict[int, None] = {}
        """Parts whose answer lacks something."""
        self._asked: set[int] = set()
        self._waiting: list[int] = []
        """Parts that are yet to be asked in this try."""
        self._left: list[int] = []
        self._tried: list[int] = []
        self._round = 0
        self._attempt = 0
        self._member = 0
        self._whys: dict[int, str] = {}

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002
        match event, self.state:
            case Begin(), ReadState.IDLE:
                if not self._open:
                    return self._finish()
                return self._begin_round()
            case Connected(attempt), ReadState.CONNECTING if attempt == self._attempt:
                self.move(ReadState.ASKING)
                self._waiting = [*self._open, *self._weak]
                return self._ask()
            case Answered(attempt, part, is_weak), ReadState.ASKING if attempt == self._attempt:
                return self._answered(part, is_weak)
            case Heard(attempt), ReadState.ASKING if attempt == self._attempt:
                return [SetTimer("answer", self._timer_ms)]
            case Failed(attempt, why), (ReadState.CONNECTING | ReadState.ASKING) if (
                attempt == self._attempt
            ):
                self._whys[self._member] = why
                return self._next()
            case TimerFired("answer"), ReadState.CONNECTING | ReadState.ASKING:
                self._whys[self._member] = f"no answer for {self._timer_ms} ms"
                return [Leave(self._member, self._attempt), *self._next()]
            case TimerFired("pause"), ReadState.PAUSING:
                return self._begin_round()
            case _:
                return []  # of a try that is over

    def _begin_round(self) -> list[Effect]:
        self._left = list(range(self._members))
        self._chance.shuffle(self._left)
        # The last is the next; one that is connected answers at once.
        self._left.sort(key=lambda member: member in self._connected)
        self._connected.clear()
        self._tried = []
        return self._try()

    def _try(self) -> list[Effect]:
        self._member = self._left.pop()
        self._tried.append(self._member)
        self._attempt += 1
        self._asked.clear()
        self._waiting = []
        self.move(ReadState.CONNECTING)
        # One time for both: a member that connects and says nothing gets no more of it.
        return [SetTimer("answer", self._timer_ms), Connect(self._member, self._attempt)]

    def _ask(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and len(self._asked) < READ_PARTS_AT_ONCE:
            part = self._waiting.pop(0)
            self._asked.add(part)
            effects.append(Ask(part, self._attempt))
        return effects

    def _answered(self, part: int, is_weak: bool) -> list[Effect]:
        assert part in self._asked, f"nobody asked for part {part}"
        assert part in self._open or part in self._weak, f"C2: part {part} is answered twice"
        self._asked.discard(part)
        self._open.pop(part, None)
        self._weak.pop(part, None)
        if is_weak:
            self._weak[part] = None
        if self._asked or self._waiting:
            return [SetTimer("answer", self._timer_ms), *self._ask()]
        if not self._open and (not self._weak or not self._left):
            return self._finish()
        self._whys[self._member] = "it has just started and does not know everything yet"
        return self._next()

    def _next(self) -> list[Effect]:
        if self._left:
            return self._try()
        if not self._open:
            # What is weak is all that anybody knows now.
            return self._finish()
        self._round += 1
        if self._round == READ_ROUNDS:
            self.move(ReadState.FAILED)
            return [CancelTimer("answer"), GiveUp(tuple(self._whys.values()))]
        self.move(ReadState.PAUSING)
        pause_ms = self._chance.randint(READ_PAUSE_MS_MIN, READ_PAUSE_MS_MAX)
        return [CancelTimer("answer"), SetTimer("pause", pause_ms)]

    def _finish(self) -> list[Effect]:
        self.move(ReadState.DONE)
        return [CancelTimer("answer"), Finish()]

    def invariants(self) -> None:
        assert len(self._tried) == len(set(self._tried)), "C1: a member is tried twice in a round"
        assert not set(self._tried) & set(self._left), "C1: a member that was tried is left"
        asked = self._asked | set(self._waiting)
        known = self._open.keys() | self._weak.keys()
        assert asked <= known, "C2: a part that is answered is asked for"
        assert self._round <= READ_ROUNDS, "C3: more rounds than there may be"
        if self.state is ReadState.ASKING:
            assert self._asked, "C3: nothing is asked, and nobody will answer"
