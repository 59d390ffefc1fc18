"""A client that stays, nodes that die, stop and are cut off, and a program that asks: from one seed.

What each node did is counted by the number of the ask. A node remembers numbered asks for good, through its
crashes; the others it does as often as it hears them. Late and repeated news of links that are over are told
to the machine as well.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from moorline.core.effects import CancelTimer, Effect, Event, SetTimer, TimerFired
from moorline.core.staying import (
    Answered,
    Asked,
    Begin,
    DeadlinePassed,
    Dial,
    Doubt,
    Hang,
    Kind,
    Leave,
    LinkLost,
    NotReached,
    Put,
    Reached,
    Refuse,
    Resume,
    Resumed,
    Staying,
    StayState,
    TellLost,
    TellNobody,
    TellOver,
    TellUp,
    Withdrawn,
)


@dataclass
class Node:
    home: str
    is_up: bool = True
    is_stopped: bool = False
    remembers: set[int] = field(default_factory=set)


@dataclass
class Link:
    attempt: int
    node: Node
    is_whole: bool = True
    unsent: set[int] = field(default_factory=set)


class World:
    def __init__(self, seed: int, nodes: int = 3) -> None:
        self.chance = random.Random(seed)
        self.nodes = [Node(f"home-{number}") for number in range(nodes)]
        self.machine = Staying("the client", nodes, random.Random(seed + 1))
        self.now_ms = 0
        self.done: Counter[int] = Counter()
        """How often an ask was done, at whatever node."""
        self.kinds: dict[int, Kind] = {}
        self.ends: dict[int, str] = {}
        self.told: list[Effect] = []
        self.is_calm = False
        self._links: dict[int, Link] = {}
        self._timer: int | None = None
        self._turns = itertools.count()
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self.post(Begin(stays=True))

    # --- time -------------------------------------------------------------------------------------

    def later(self, most_ms: int, what: Callable[[], None]) -> None:
        at_ms = self.now_ms + self.chance.randint(0, most_ms)
        heapq.heappush(self._agenda, (at_ms, next(self._turns), what))

    def step(self) -> bool:
        if not self._agenda:
            return False
        self.now_ms, _, what = heapq.heappop(self._agenda)
        what()
        return True

    def post(self, event: Event) -> None:
        effects = self.machine.handle(event, self.now_ms)
        self.machine.check()
        for effect in effects:
            self._perform(effect)

    # --- the program ------------------------------------------------------------------------------

    def ask(self) -> int:
        number = next(self._numbers)
        self.kinds[number] = self.chance.choice(list(Kind))
        self.post(Asked(number, self.kinds[number]))
        if number not in self.ends:
            self.later(60_000, lambda: self._deadline(number))
        if self.chance.random() < 0.05:
            self.later(500, lambda: self._withdraw(number))
        return number

    def _deadline(self, number: int) -> None:
        if number not in self.ends:
            self.post(DeadlinePassed(number))

    def _withdraw(self, number: int) -> None:
        if number not in self.ends:
            self.ends[number] = "withdrawn"
            self.post(Withdrawn(number))

    def _end(self, number: int, how: str) -> None:
        assert self.ends.get(number, "withdrawn") == "withdrawn", f"{number} ended twice"
        self.ends.setdefault(number, how)

    # --- what the machine wants -------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Dial(attempt, place):
                self.later(200, lambda: self._dialled(attempt, self.nodes[place]))
            case Resume(attempt):
                self.later(300, lambda: self._resumed(attempt))
            case Put(number):
                link = self._links[max(self._links)]
                link.unsent.add(number)
                self.later(5, lambda: self._leaves(link, number))
            case Doubt(number):
                assert self.kinds[number] is not Kind.QUESTION
                self._end(number, "doubted")
            case Refuse(number):
                assert self.kinds[number] is Kind.QUESTION or not self.done[number], (
                    f"{number} was refused and done"
                )
                self._end(number, "refused")
            case Hang(attempt):
                self._links[attempt].is_whole = False
            case SetTimer(_, after_ms):
                self._timer = timer = next(self._turns)
                heapq.heappush(
                    self._agenda, (self.now_ms + after_ms, timer, lambda: self._fire(timer))
                )
            case CancelTimer():
                self._timer = None
            case TellUp() | TellLost() | TellNobody() | TellOver():
                self.told.append(effect)
            case _:
                raise AssertionError(f"nobody performs {effect}")

    def _fire(self, timer: int) -> None:
        if timer == self._timer:
            self.post(TimerFired("retry"))

    def _dialled(self, attempt: int, node: Node) -> None:
        if node.is_up and not node.is_stopped:
            self._links[attempt] = Link(attempt, node)
            self.post(Reached(attempt, node.home))
        else:
            self.post(NotReached(attempt, "nobody is there"))

    def _resumed(self, attempt: int) -> None:
        link = self._links[attempt]
        if link.is_whole and not link.node.is_stopped:
            self.post(Resumed(attempt))
        elif link.is_whole:
            self.later(1_000, lambda: self._resumed(attempt))

    def _leaves(self, link: Link, number: int) -> None:
        """The node hears it, does it or not, and answers or not."""
        if number not in link.unsent or not link.is_whole:
            return
        link.unsent.discard(number)
        self.later(50, lambda: self._heard(link, number))

    def _heard(self, link: Link, number: int) -> None:
        node = link.node
        if node.is_stopped:
            self.later(2_000, lambda: self._heard(link, number))
            return
        # A link that is cut may have delivered what was on its way.
        if not node.is_up or (not link.is_whole and self.chance.random() < 0.5):
            return
        if self.kinds[number] is not Kind.NUMBERED or number not in node.remembers:
            self.done[number] += 1
            node.remembers.add(number)
        self.later(50, lambda: self._answer(link, number))

    def _answer(self, link: Link, number: int) -> None:
        if link.is_whole and number not in self.ends:
            self._end(number, "answered")
            self.post(Answered(number))

    # --- what goes wrong --------------------------------------------------------------------------

    def befall(self) -> None:
        node = self.chance.choice(self.nodes)
        match self.chance.randrange(4):
            case 0:
                node.is_up = False
                self._cut(node)
                self.later(5_000, lambda: setattr(node, "is_up", True))
            case 1:
                node.is_stopped = True
                self.later(3_000, lambda: setattr(node, "is_stopped", False))
                self.later(4_000, lambda: self._silent(node))
            case 2:
                self._cut(node)
            case _:
                # News of a link that is long over.
                attempt = self.chance.randint(1, max(self._links, default=1))
                if attempt not in self._links or not self._links[attempt].is_whole:
                    self.post(self.chance.choice([LinkLost(attempt, "late"), Resumed(attempt)]))

    def _silent(self, node: Node) -> None:
        if node.is_stopped:
            self._cut(node)

    def _cut(self, node: Node) -> None:
        for link in list(self._links.values()):
            if link.node is node and link.is_whole:
                link.is_whole = False
                self.post(LinkLost(link.attempt, "cut", tuple(sorted(link.unsent))))

    def calm(self) -> None:
        self.is_calm = True
        for node in self.nodes:
            node.is_up, node.is_stopped = True, False

    def leave(self) -> None:
        self.post(Leave("the program is done"))

    @property
    def is_up(self) -> bool:
        return self.machine.state is StayState.UP
