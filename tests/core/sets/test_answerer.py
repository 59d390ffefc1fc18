"""The answering side: what goes with a digest is what costs fewest bytes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from moorline.core.sets.answerer import FIRST_CELLS, Answerer, InMemory, sketch_or_list
from moorline.core.sets.asker import LISTED_BYTES, Mode, listed_of, sketch_bytes
from moorline.core.sets.digest import Digest
from moorline.core.sets.memory_set import MemorySet
from moorline.core.sets.prefix import ALL, Prefix
from moorline.core.sets.sketch import Salt, Sketch
from moorline.errors import Malformed

SALT = Salt(bytes(range(16)))
Value = TypeVar("Value")


def of(*ids: bytes) -> MemorySet:
    return MemorySet(SALT, ids)


def answered(waiting: Coroutine[Any, Any, Value]) -> Value:
    return asyncio.run(waiting)


def numbered(first: int, end: int) -> list[bytes]:
    return [b"id %d" % number for number in range(first, end)]


def test_equal_sets_need_nothing_but_the_digest() -> None:
    own, other = of(*numbered(0, 100)), of(*numbered(0, 100))
    found = answered(Answerer(InMemory(own)).verify(other.digest()))
    assert (found.mode, found.payload) == (Mode.EQUAL, b"")


@pytest.mark.parametrize(
    ("own", "theirs", "mode"),
    [(0, 5, Mode.EMPTY), (5, 0, Mode.SURPLUS), (5, 4, Mode.LIST), (100_000, 99_999, Mode.SKETCH)],
)
def test_what_is_cheapest_is_sent(own: int, theirs: int, mode: Mode) -> None:
    found, cells = sketch_or_list(Digest(own, b"a" * 16), Digest(theirs, b"b" * 16), None, 0)
    assert found is mode
    if mode is Mode.SKETCH:
        assert sketch_bytes(cells) < own * LISTED_BYTES


def test_an_estimate_decides_how_large_a_sketch_is() -> None:
    own, theirs = Digest(10**6, b"a" * 16), Digest(10**6, b"b" * 16)
    _, few = sketch_or_list(own, theirs, 10, 0)
    _, many = sketch_or_list(own, theirs, 1_000, 0)
    _, unknown = sketch_or_list(own, theirs, None, 0)
    _, asked = sketch_or_list(own, theirs, 10, many + 1)
    assert few < many < asked
    assert unknown == FIRST_CELLS


def test_a_sketch_and_a_list_are_those_of_the_set() -> None:
    own = of(*numbered(0, 5_000))
    answerer = Answerer(InMemory(own))
    found = answered(answerer.verify(of(*numbered(1, 5_001)).digest()))
    assert found.mode is Mode.SKETCH
    made = Sketch.parse(SALT, found.cells, found.payload)
    assert bytes(made) == bytes(own.sketch(found.cells))
    few = of(*numbered(0, 3))
    listed = answered(Answerer(InMemory(few)).verify(of(*numbered(0, 2)).digest()))
    assert (listed.mode, listed.payload) == (Mode.LIST, listed_of(few.ids(ALL)))


def test_ranges_and_lists_are_by_prefix() -> None:
    own = of(*numbered(0, 500))
    answerer = Answerer(InMemory(own))
    halves = [Prefix(1, 0), Prefix(1, 1)]
    counts = [one.count for one in answered(answerer.ranges(halves))]
    lists = answered(answerer.lists(halves))
    assert sum(counts) == 500
    assert [len(one) // 8 for one in lists] == counts


@pytest.mark.parametrize(
    "prefixes", [[ALL, ALL], [ALL, Prefix(1, 0)], [Prefix(3, 5), Prefix(2, 2)]]
)
def test_a_question_that_tells_something_twice_is_refused(prefixes: list[Prefix]) -> None:
    answerer = Answerer(InMemory(of(*numbered(0, 500))))
    for asked in (answerer.ranges, answerer.lists):
        with pytest.raises(Malformed, match="overlap"):
            answered(asked(prefixes))
