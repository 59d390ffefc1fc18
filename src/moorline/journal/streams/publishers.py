"""Room: journal/streams. Whose bytes are in the streams: of each publisher, in all generations that are kept.

A frame does not say who published it. So a shard marks in its batch where another publisher begins, and a
commit adds up the bytes between two marks: once a batch, not once a message. Each generation has the sums of
its own messages, which its snapshot and its seal keep; a drop gives them back.

What a crash takes from the count is what the newest generation got behind its last snapshot: those bytes are
nobody's from then on. A count is never above what is stored.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from moorline.limits import PUBLISHERS_COUNTED_MAX

NOBODY = ""
"""Publishes what is counted for no principal: what a node says itself."""


class Mark(NamedTuple):
    """From this message on they are of that publisher."""

    offset: int
    publisher: str


class StoredBytes:
    """Of all publishers of a node; only what is above 0 is listed."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def of(self, publisher: str) -> int:
        return self._bytes.get(publisher, 0)

    def add(self, found: Mapping[str, int]) -> None:
        for publisher, size in found.items():
            self._bytes[publisher] = self._bytes.get(publisher, 0) + size

    def give_back(self, gone: Mapping[str, int]) -> None:
        for publisher, size in gone.items():
            left = self._bytes[publisher] - size
            assert left >= 0, f"more bytes of {publisher!r} are dropped than were stored"
            if left:
                self._bytes[publisher] = left
            else:
                del self._bytes[publisher]

    def __eq__(self, other: object) -> bool:
        return self._bytes == other._bytes if isinstance(other, StoredBytes) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def bytes_between(
    marks: Sequence[Mark], edges: Sequence[int], known: Mapping[str, int]
) -> dict[str, int]:
    """The bytes of each publisher of a batch. The message of `marks[i]` begins at `edges[i]`, and the batch
    ends at the last edge. Beside those of `known`, which its generation has, so many are counted by name."""
    found: dict[str, int] = {}
    for (_, publisher), (begin, end) in zip(marks, pairwise(edges), strict=True):
        if publisher == NOBODY or end == begin:
            continue
        is_counted = publisher in known or publisher in found
        # Too many by at most those that are both known and found: a bound of memory, and no promise.
        if is_counted or len(known) + len(found) < PUBLISHERS_COUNTED_MAX:
            found[publisher] = found.get(publisher, 0) + end - begin
    return found
