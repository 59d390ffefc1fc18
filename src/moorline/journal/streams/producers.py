"""Room: journal/streams. Who published with which sequence: what makes a repeated message a duplicate.

A producer numbers its messages. In each shard the last number of each producer is kept; a message whose
number is not above it was stored before, or is in the batch under way, and is not stored twice.
"""

from collections.abc import Iterable
from typing import Final

from moorline.limits import PRODUCERS_MAX

UNNUMBERED: Final = (1 << 64) - 1
"""The sequence of whoever names itself and does not number: it is never compared and never remembered, so
that a hundred thousand of them do not make the shard forget those that do number."""


class Producers:
    """The last sequence of each producer in one shard."""

    __slots__ = ("fresh", "stored")

    def __init__(self) -> None:
        self.stored: dict[int, int] = {}
        """Whoever was seen last stands at the end."""
        self.fresh: dict[int, int] = {}
        """Of the batch under way: apart, because a snapshot says what was before it."""

    def last(self, producer: int) -> int:
        """-1 if it has published nothing here, or nothing that is remembered."""
        # What is fresh is always the greater one: a sequence only grows.
        last = self.fresh.get(producer)
        return self.stored.get(producer, -1) if last is None else last

    def is_duplicate(self, producer: int, sequence: int) -> bool:
        """Whether it has published that message before."""
        return sequence <= self.last(producer)

    def note(self, producer: int, sequence: int) -> None:
        """It is in the batch under way."""
        self.fresh[producer] = sequence

    def take_batch(self) -> None:
        """The batch under way is about to be written."""
        remember(self.stored, self.fresh.items())
        self.fresh = {}


def remember(producers: dict[int, int], seen: Iterable[tuple[int, int]]) -> None:
    """Puts what was seen at the recent end, never back; and forgets those not seen for longest."""
    for producer, sequence in seen:
        known = producers.pop(producer, -1)
        producers[producer] = max(known, sequence)
    while len(producers) > PRODUCERS_MAX:
        del producers[next(iter(producers))]
