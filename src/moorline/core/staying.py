"""Room: core. A link that stays: who is dialled when, and what becomes of the calls that a loss met.

    DIALLING ─ reached ─► RESUMING ─ resumed ─► UP
       ▲  │ nobody in this round                 │ lost
       │  ▼                                      ▼
       └─ WAITING ◄──────────────────────────────┘        OVER: the program left, or all refuse us for good

A place whose link is lost while it resumes was not reached: the round goes on with the next one.
The program's calls are *asks*. One that was not put on a link waits for the next one, wherever it leads. Of
one that was put and not answered only its kind says what may be done:

    QUESTION   changes nothing: it is asked again, anywhere
    NUMBERED   the home remembers it, by a producer's number or a token: it is put again at that home only
    CHANGE     nobody remembers it: it ends in doubt, at once

An ask whose deadline passes, or that is left when the link is over, is refused if it never left, or is a
question; else it ends in doubt. Doubt is `OutcomeUnknown` of the program.

Invariants:
S1  an ask is put at most once on one link, and only on the link that is up
S2  what was put on a link and may have been done is put again only if it is NUMBERED, and at the same home
S3  an ask has one end: answered, doubted, refused or withdrawn; then nothing is known of it any more
S4  while it is up, no ask waits but a NUMBERED one of another home
S5  one dial is under way at most, and none while it is up, waits or is over
S6  a refused ask was never done, unless it is a question; a doubted one was put

Design: docs/design/client.md.
"""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

import msgspec

from moorline.core.backoff import pause_ms
from moorline.core.chance import Chance
from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.machine import Machine
from moorline.limits import CLIENT_ASKS_MAX, CLIENT_RETURN_MS, CLIENT_RETURN_MS_MAX

RETRY = "retry"


class StayState(Enum):
    DIALLING = "dialling"
    RESUMING = "resuming"
    UP = "up"
    WAITING = "waiting"
    OVER = "over"


class Kind(Enum):
    """What may be done with an ask that a loss met."""

    QUESTION = "question"
    NUMBERED = "numbered"
    CHANGE = "change"


class Begin(Event, frozen=True):
    """The first round. One that leads to nobody is the end, unless it `stays` from the beginning."""

    stays: bool = False


class Reached(Event, frozen=True):
    """The node of this dial says hello, and which home is its own."""

    attempt: int
    home: str


class NotReached(Event, frozen=True):
    """The place of this dial does not serve us; `is_final` if to ask it again changes nothing."""

    attempt: int
    why: str
    is_final: bool = False


class Resumed(Event, frozen=True):
    """What the program had is there again on the link of this dial, as far as it can be."""

    attempt: int


class LinkLost(Event, frozen=True):
    """The link of this dial is gone. `unsent` are asks that were put on it and had not left."""

    attempt: int
    why: str
    unsent: tuple[int, ...] = ()


class Asked(Event, frozen=True):
    number: int
    kind: Kind


class Answered(Event, frozen=True):
    number: int


class Withdrawn(Event, frozen=True):
    """Nobody waits for it any more."""

    number: int


class DeadlinePassed(Event, frozen=True):
    number: int


class Leave(Event, frozen=True):
    why: str


class Dial(Effect, frozen=True):
    """Connect to the place of that index."""

    attempt: int
    place: int


class Resume(Effect, frozen=True):
    """Bring back what the program has, on the link of that dial; then say `Resumed`."""

    attempt: int
    is_first: bool


class Put(Effect, frozen=True):
    """Call it on the link that is up."""

    number: int


class Doubt(Effect, frozen=True):
    """It may have been done or not, and nobody can say."""

    number: int
    why: str


class Refuse(Effect, frozen=True):
    """Nothing was done, and nothing will be."""

    number: int
    why: str


class Hang(Effect, frozen=True):
    """The link of that dial is of no use."""

    attempt: int


class TellUp(Effect, frozen=True):
    home: str
    is_first: bool
    is_elsewhere: bool
    """At another home than before."""


class TellLost(Effect, frozen=True):
    why: str


class TellNobody(Effect, frozen=True):
    """A round led to nobody; the next one begins behind the pause."""

    why: str
    pause_ms: int


class TellOver(Effect, frozen=True):
    why: str


class Ask(msgspec.Struct):
    """One call of the program, or several that are made together."""

    kind: Kind
    attempt: int = 0
    """The link it is on; 0 while it waits."""
    home: str = ""
    """Where it may have been done already."""


class Staying(Machine[StayState]):
    """One link to one of several places, and the asks over it."""

    moves: ClassVar[Mapping[Enum, frozenset[Enum]]] = {
        StayState.WAITING: frozenset({StayState.DIALLING, StayState.OVER}),
        StayState.DIALLING: frozenset({StayState.RESUMING, StayState.WAITING, StayState.OVER}),
        StayState.RESUMING: frozenset({StayState.UP, StayState.DIALLING, StayState.OVER}),
        StayState.UP: frozenset({StayState.WAITING, StayState.OVER}),
        StayState.OVER: frozenset(),
    }

    def __init__(
        self,
        name: str,
        places: int,
        chance: Chance,
        *,
        return_ms: int = CLIENT_RETURN_MS,
        return_ms_max: int = CLIENT_RETURN_MS_MAX,
    ) -> None:
        assert places > 0, "a link without a place to go"
        super().__init__(name, StayState.WAITING)
        self._places = places
        self._chance = chance
        self._return_ms, self._return_ms_max = return_ms, return_ms_max
        self._left: list[int] = []
        """Places that this round has yet to try."""
        self._round: list[NotReached] = []
        self._attempt = 0
        self._tries = 0
        """Rounds in a row that led to nobody."""
        self._stays = False
        self._was_up = False
        self.home = ""
        """Where the link leads, or led last."""
        self._before = ""
        self._asks: dict[int, Ask] = {}

    def __len__(self) -> int:
        return len(self._asks)

    @property
    def is_full(self) -> bool:
        return len(self._asks) >= CLIENT_ASKS_MAX

    def step(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: ARG002 - no time is looked at
        match event:
            case Asked(number, kind):
                return self._asked(number, kind)
            # Asks are heard in every state, also behind the end: their owners wait for one word each (S3).
            case Answered(number) | Withdrawn(number):
                self._asks.pop(number, None)
                return []
            case DeadlinePassed(number):
                ask = self._asks.pop(number, None)
                why = "its deadline passed"
                return [] if ask is None else [self._end(number, ask, why)]
        if self.state is StayState.OVER:
            return []
        return self._of_link(event)

    def _of_link(self, event: Event) -> list[Effect]:
        match event:
            case Begin(stays):
                assert self.state is StayState.WAITING, "it has begun already"
                self._stays = stays
                return self._begin_round()
            case TimerFired(name) if name == RETRY and self.state is StayState.WAITING:
                return self._begin_round()
            case Reached(attempt, home) if self._is_dialling(attempt):
                # The home is known before anything is brought back: what is brought back may depend on it.
                self._before, self.home = self.home, home
                self.move(StayState.RESUMING)
                return [Resume(attempt, is_first=not self._was_up)]
            case NotReached(attempt) if self._is_dialling(attempt):
                self._round.append(event)
                return self._next_place()
            case Resumed(attempt) if self._is_now(attempt, StayState.RESUMING):
                return self._up()
            case LinkLost(attempt, why, unsent) if self._is_now(
                attempt, StayState.RESUMING, StayState.UP
            ):
                return self._lost(why, frozenset(unsent))
            case Leave(why):
                return self._over(why)
        return []

    # --- the link ---------------------------------------------------------------------------------

    def _is_dialling(self, attempt: int) -> bool:
        return self._is_now(attempt, StayState.DIALLING)

    def _is_now(self, attempt: int, *states: StayState) -> bool:
        """What an attempt that was given up says late is of no interest."""
        return attempt == self._attempt and self.state in states

    def _begin_round(self) -> list[Effect]:
        self.move(StayState.DIALLING)
        self._round = []
        self._left = list(range(self._places))
        if self._was_up:
            # By chance: those that were cut together must not all go to the same node. The first time
            # in the order that the program gave.
            self._chance.shuffle(self._left)
        return self._next_place()

    def _next_place(self) -> list[Effect]:
        if self._left:
            self._attempt += 1
            return [Dial(self._attempt, self._left.pop(0))]
        # One place that may serve us later is enough to go on; that all refuse for good will not change.
        why = self._round[-1].why
        if all(one.is_final for one in self._round) or not (self._was_up or self._stays):
            return self._over(why)
        # The pause of this round first, and then it counts: the first one is the shortest.
        wait_ms = self._pause_ms()
        self._tries += 1
        self.move(StayState.WAITING)
        return [TellNobody(why, wait_ms), SetTimer(RETRY, wait_ms)]

    def _up(self) -> list[Effect]:
        is_first, self._was_up, self._tries = not self._was_up, True, 0
        self.move(StayState.UP)
        is_elsewhere = not is_first and self._before != self.home
        # The program hears that it is elsewhere before any answer comes from there. Asks go in the order in
        # which they were made: a dict keeps it, also over links on which they were not answered.
        effects: list[Effect] = [TellUp(self.home, is_first, is_elsewhere)]
        for number, ask in self._asks.items():
            effects += self._put(number, ask)
        return effects

    def _lost(self, why: str, unsent: frozenset[int]) -> list[Effect]:
        hang = Hang(self._attempt)
        if self.state is StayState.RESUMING:
            # No ask was on it (S1). A program that waits for its first link must hear of a round that
            # led to nobody here too: a node that is full says hello, and then goodbye.
            self.move(StayState.DIALLING)
            self._round.append(NotReached(self._attempt, why))
            return [hang, *self._next_place()]
        self.move(StayState.WAITING)
        effects: list[Effect] = [hang, TellLost(why)]
        for number, ask in list(self._asks.items()):
            if not ask.attempt:
                continue
            ask.attempt = 0
            # Behind this line it may have been done. A question may be, as often as it likes; what never
            # left was not.
            if ask.kind is Kind.QUESTION or number in unsent:
                continue
            # A numbered one keeps the home that may have done it: no other knows its number (S2).
            ask.home = self.home
            if ask.kind is Kind.CHANGE:
                # At once, and not at its deadline: no link that comes can tell what became of it.
                del self._asks[number]
                effects.append(Doubt(number, why))
        return [*effects, SetTimer(RETRY, self._pause_ms())]

    def _over(self, why: str) -> list[Effect]:
        # Hung up first: nothing that is told below may be overtaken by an answer.
        effects: list[Effect] = [CancelTimer(RETRY)]
        if self.state in (StayState.RESUMING, StayState.UP):
            effects.append(Hang(self._attempt))
        self.move(StayState.OVER)
        effects += [self._end(number, ask, why) for number, ask in self._asks.items()]
        self._asks.clear()
        return [*effects, TellOver(why)]

    def _pause_ms(self) -> int:
        chance = self._chance.randrange(1_000) / 1_000
        return pause_ms(self._tries, chance, first_ms=self._return_ms, most_ms=self._return_ms_max)

    # --- asks -------------------------------------------------------------------------------------

    def _asked(self, number: int, kind: Kind) -> list[Effect]:
        assert number not in self._asks, f"ask {number} is there already"
        ask = Ask(kind)
        if self.state is StayState.OVER:
            return [Refuse(number, "the client is closed")]
        if self.is_full:
            return [Refuse(number, f"{CLIENT_ASKS_MAX} calls wait already")]
        self._asks[number] = ask
        return self._put(number, ask) if self.state is StayState.UP else []

    def _put(self, number: int, ask: Ask) -> list[Effect]:
        assert not ask.attempt, f"ask {number} is on a link already"
        if ask.home and ask.home != self.home:
            return []  # it waits for that home, or for its deadline (S4)
        ask.attempt = self._attempt
        return [Put(number)]

    def _end(self, number: int, ask: Ask, why: str) -> Effect:
        # On a link now, or numbered and lost with one.
        may_be_done = ask.attempt or ask.home
        if may_be_done and ask.kind is not Kind.QUESTION:
            return Doubt(number, why)
        return Refuse(number, why)

    def invariants(self) -> None:
        for number, ask in self._asks.items():
            on_link = ask.attempt != 0
            assert not on_link or ask.attempt == self._attempt, (
                f"S1: ask {number} is on an old link"
            )
            assert not on_link or self.state is StayState.UP, f"S1: ask {number} is on no link"
            assert not ask.home or ask.kind is Kind.NUMBERED, f"S2: ask {number} may be done twice"
            if on_link and ask.home:
                assert ask.home == self.home, f"S2: ask {number} is put elsewhere"
            if self.state is StayState.UP and not on_link:
                assert ask.home not in ("", self.home), f"S4: ask {number} waits"
        assert self.state is not StayState.OVER or not self._asks, (
            "S3: an ask is left behind the end"
        )
