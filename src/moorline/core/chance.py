"""Room: core. Chance, as machines are given it: a generator with a seed, so that a story can be told again.

`random.Random` is one. A machine has none of its own: what it did would not be repeatable.
"""

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    def randrange(self, stop: int, /) -> int:
        """From 0 up to and without `stop`."""

    def randint(self, a: int, b: int, /) -> int:
        """From `a` up to and with `b`."""

    def choice(self, seq: Sequence[T], /) -> T: ...

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """In place."""
