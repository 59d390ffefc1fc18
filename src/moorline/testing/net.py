"""Room: testing. A net that loses, repeats, delays and reorders, all from one seeded chance.

    net = UnreliableNet(random.Random(7), loss=0.1, repeat=0.05, delay_ms=(1, 50))
    net.send("a", "b", Ping(), now_ms)
    while (delivery := net.take(now_ms)) is not None: ...

With its faults at zero it is what TCP promises: every message once, in order on each link.
"""

import heapq
import random
from typing import Any, Final, NamedTuple

IN_FLIGHT_MAX: Final = 65_536
"""Messages on their way at once; what is above is lost, as in a switch whose buffers are full."""


class Delivery(NamedTuple):
    """A message that arrives at `due_ms`; `number` makes the order of equal times the sent one."""

    due_ms: int
    number: int
    source: str
    target: str
    message: Any
    sure: bool = False


class UnreliableNet:
    """Holds messages until they are due. `loss` and `repeat` are probabilities for each message.

    `ordered` keeps the order on each link in spite of random delays, as a TCP connection does.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        loss: float = 0.0,
        repeat: float = 0.0,
        delay_ms: tuple[int, int] = (1, 1),
        ordered: bool = False,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        assert 0 <= loss <= 1, f"loss is a probability: {loss}"
        assert 0 <= repeat <= 1, f"repeat is a probability: {repeat}"
        assert 0 <= delay_ms[0] <= delay_ms[1], f"delay_ms is (low, high): {delay_ms}"
        self.loss = loss
        self.repeat = repeat
        self.delay_ms = delay_ms
        self.ordered = ordered
        self.lost_count = 0
        self._in_flight_max = in_flight_max
        self._chance = chance
        self._number = 0
        self._in_flight: list[Delivery] = []
        self._cut: set[frozenset[str]] = set()
        self._last_due_ms: dict[tuple[str, str], int] = {}

    def send(self, source: str, target: str, message: Any, now_ms: int) -> int:
        """Takes a message; returns how many copies are on their way: 0, 1 or 2."""
        # All dice are thrown for every message, so that a cut does not shift the chance of others.
        lost = self._chance.random() < self.loss
        copies = 2 if self._chance.random() < self.repeat else 1
        delays_ms = [self._chance.randint(*self.delay_ms) for _ in range(copies)]
        room = self._in_flight_max - len(self._in_flight)
        if lost or self.is_cut(source, target) or room < copies:
            self.lost_count += 1
            return 0
        for delay_ms in delays_ms:
            self._launch(source, target, message, now_ms + delay_ms, sure=False)
        return copies

    def send_sure(self, source: str, target: str, message: Any, now_ms: int) -> None:
        """For the end of a link, which both sides learn sooner or later: late, but never lost."""
        delay_ms = self._chance.randint(*self.delay_ms)
        self._launch(source, target, message, now_ms + delay_ms, sure=True)

    def _launch(self, source: str, target: str, message: Any, due_ms: int, *, sure: bool) -> None:
        if self.ordered:
            due_ms = max(due_ms, self._last_due_ms.get((source, target), 0))
            self._last_due_ms[source, target] = due_ms
        self._number += 1
        delivery = Delivery(due_ms, self._number, source, target, message, sure)
        heapq.heappush(self._in_flight, delivery)

    def next_due_ms(self) -> int | None:
        """When the next message arrives; None if nothing is on its way."""
        return self._in_flight[0].due_ms if self._in_flight else None

    def take(self, now_ms: int) -> Delivery | None:
        """The next message that has arrived by now, if any."""
        if self._in_flight and self._in_flight[0].due_ms <= now_ms:
            return heapq.heappop(self._in_flight)
        return None

    def in_flight(self) -> int:
        return len(self._in_flight)

    def cut(self, a: str, b: str) -> None:
        """Nothing passes between the two, in both directions; what was on its way is lost."""
        self._cut.add(frozenset((a, b)))
        self.drop(a, b)
        self.drop(b, a)

    def heal(self, a: str, b: str) -> None:
        self._cut.discard(frozenset((a, b)))

    def heal_all(self) -> None:
        self._cut.clear()

    def is_cut(self, a: str, b: str) -> bool:
        return frozenset((a, b)) in self._cut

    def drop(self, source: str, target: str) -> None:
        """Loses what is on its way from one to the other."""
        link = (source, target)
        kept = [d for d in self._in_flight if d.sure or (d.source, d.target) != link]
        self.lost_count += len(self._in_flight) - len(kept)
        heapq.heapify(kept)
        self._in_flight = kept

    def calm(self) -> None:
        """No more faults from now on: cuts healed, nothing lost or repeated. Delays stay."""
        self.loss = self.repeat = 0.0
        self.heal_all()
