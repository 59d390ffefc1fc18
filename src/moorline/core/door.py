"""Room: core. Who may come in at a port, while there is room and when there is none.

    knocked ──► WAITING ◄─► INSIDE ──► gone      back where it has its answer, and may ask again or not
       │           │          └─────► SETTLED ──► gone   it stays for long, at the expense of another door
       │           └──────► LEAVING ──► gone     cut: it said nothing yet, and another one wants its place
       ├──────► REFUSED ──► gone                 all places are taken: it stays until it has heard so
       └──────► dropped                          the process has hardly a descriptor left

A peer that has not said what it wants must not keep out one that does. So a newcomer takes the place of
whoever has waited longest without a word, and is refused only where all that are inside have said one.
Whoever came a moment ago has not had the time to say anything, and is not cut for another's sake: until it
has, who knocks waits outside.

Invariants, looked at by `check`:

    T1  a visitor is in one of the five at most
    T2  each that is WAITING or INSIDE, or came from another door, holds a descriptor of the door's use,
    and nobody
        else does
    T3  each that is REFUSED or LEAVING holds one of those that are turned away
    T4  those that wait, and those that were refused, stand in the order in which they came
"""

from moorline.core.descriptors import Descriptors, Use
from moorline.core.effects import Effect
from moorline.limits import PATIENCE_MS


class Admit(Effect, frozen=True):
    """Let it in."""

    visitor: int


class Refuse(Effect, frozen=True):
    """Let it in as far as to be told that there is no room."""

    visitor: int


class Drop(Effect, frozen=True):
    """Close it without a word; nothing is held for it."""

    visitor: int


class Cut(Effect, frozen=True):
    """Close it, whatever it is at; `left` is heard when it is gone."""

    visitor: int


Verdict = Admit | Refuse | Drop | Cut


class Door:
    """The places of one use. Every visitor that is not dropped is heard of again, by `left`."""

    def __init__(self, descriptors: Descriptors, use: Use) -> None:
        self._descriptors = descriptors
        self.use = use
        self._waiting: dict[int, int] = {}
        """By visitor: when it came. The first is the oldest."""
        self._inside: set[int] = set()
        # With their times as well: one that does not listen is cut when others want to be told.
        self._refused: dict[int, int] = {}
        self._leaving: set[int] = set()
        self._settled: dict[int, Door] = {}
        """By visitor: the door at whose expense it stays."""
        self.guests = 0
        """Those of other doors that stay at the expense of this one."""
        self.refused = 0
        """Since the start: refused, and dropped."""
        self.cut = 0

    def __len__(self) -> int:
        """Those that hold a descriptor now."""
        here = len(self._waiting) + len(self._inside) + len(self._settled)
        return here + len(self._refused) + len(self._leaving)

    @property
    def places(self) -> int:
        return self._descriptors.shares.most[self.use]

    @property
    def turned_away_max(self) -> int:
        return self._descriptors.shares.most[Use.TURNED_AWAY]

    def is_ready(self, now_ms: int) -> bool:
        """Whether the next one can be let in, or told that there is no room. If not, it waits outside."""
        if self._descriptors.has_room(self.use):
            return True
        if not self._descriptors.has_room(Use.TURNED_AWAY):
            return False
        return not self._waiting or _oldest(self._waiting, now_ms) is not None

    def make_room(self, now_ms: int) -> list[Cut]:
        """Who is to go so that the next one can come: one that was to be told, and does not listen."""
        oldest = _oldest(self._refused, now_ms)
        if self._descriptors.has_room(Use.TURNED_AWAY) or oldest is None:
            return []
        return [self._cut(self._refused, oldest)]

    def knock(self, visitor: int, number: int, now_ms: int) -> list[Verdict]:
        """Somebody is at the door, with the descriptor of that number."""
        assert self.is_ready(now_ms), "it was to wait outside"
        account = self._descriptors
        # Before the shares are asked: they are a plan, and the number says what is really open.
        if account.is_nearly_full(number):
            self.refused += 1
            return [Drop(visitor)]
        if account.has_room(self.use):
            account.take(self.use)
            self._waiting[visitor] = now_ms
            return [Admit(visitor)]
        oldest = _oldest(self._waiting, now_ms)
        if oldest is not None:
            # In this order: the place must be free before it is taken. The one that is cut keeps its
            # descriptor until it is closed, so it is counted elsewhere, and not given back.
            account.move(self.use, Use.TURNED_AWAY)
            account.take(self.use)
            self._waiting[visitor] = now_ms
            return [self._cut(self._waiting, oldest), Admit(visitor)]
        self.refused += 1
        account.take(Use.TURNED_AWAY)
        self._refused[visitor] = now_ms
        return [Refuse(visitor)]

    def heard(self, visitor: int) -> None:
        """It has said what it wants: nobody takes its place any more."""
        # One that was cut may still be heard of: its last words were on their way.
        if visitor in self._waiting:
            del self._waiting[visitor]
            self._inside.add(visitor)

    def quiet(self, visitor: int, now_ms: int) -> None:
        """It has what it wanted: if it asks no more, another may have its place."""
        if visitor in self._inside:
            self._inside.discard(visitor)
            self._waiting[visitor] = now_ms

    def settle(self, visitor: int, other: "Door") -> bool:
        """Whether it can stay for long, at the expense of the other door; if not, all is as before."""
        assert other is not self
        if visitor not in self._inside or not self._descriptors.has_room(other.use):
            return False
        self._descriptors.move(self.use, other.use)
        self._inside.discard(visitor)
        self._settled[visitor] = other
        other.guests += 1
        return True

    def left(self, visitor: int) -> None:
        """Its descriptor is closed."""
        if visitor in self._waiting or visitor in self._inside:
            self._waiting.pop(visitor, None)
            self._inside.discard(visitor)
            self._descriptors.give_back(self.use)
        elif visitor in self._refused or visitor in self._leaving:
            self._refused.pop(visitor, None)
            self._leaving.discard(visitor)
            self._descriptors.give_back(Use.TURNED_AWAY)
        elif visitor in self._settled:
            other = self._settled.pop(visitor)
            other.guests -= 1
            self._descriptors.give_back(other.use)

    def check(self) -> None:
        """Asserts the invariants."""
        kinds = (
            self._waiting.keys(),
            self._inside,
            self._refused.keys(),
            self._leaving,
            self._settled.keys(),
        )
        assert len(set().union(*kinds)) == len(self), f"T1: {kinds} have one in common"
        account = self._descriptors
        places = len(self._waiting) + len(self._inside) + self.guests
        held, away = account.held(self.use), len(self._refused) + len(self._leaving)
        assert held == places, f"T2: {held} are held for {places}"
        # Not equal: the doors of all ports turn away at the expense of one share.
        assert account.held(Use.TURNED_AWAY) >= away, f"T3: fewer than {away} are held"
        for among in (self._waiting, self._refused):
            assert list(among.values()) == sorted(among.values()), f"T4: {among}"
        account.check()

    def _cut(self, among: dict[int, int], visitor: int) -> Cut:
        del among[visitor]
        self._leaving.add(visitor)
        self.cut += 1
        return Cut(visitor)


def _oldest(among: dict[int, int], now_ms: int) -> int | None:
    """Whoever came first, if it had the time to say something."""
    if not among:
        return None
    # The first is the oldest (T4), so nobody is searched through.
    visitor = next(iter(among))
    return visitor if now_ms - among[visitor] >= PATIENCE_MS else None
