"""A set in memory against one that is made anew: after any changes digest, sketch and ranges are the same."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.drawing import examples

from moorline.core.sets.answerer import Answerer, InMemory
from moorline.core.sets.asker import Mode
from moorline.core.sets.digest import Digest
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.memory_set import MemorySet
from moorline.core.sets.prefix import ALL, Prefix
from moorline.core.sets.sketch import CELLS_FULL, Salt

SALT = Salt(bytes(range(16)))
POOL = [b"/path/%d" % number for number in range(40)]
CELLS = 60
LARGER = CELLS_FULL + 7

some = st.lists(st.sampled_from(POOL), max_size=12)


def anew(ids: set[bytes]) -> IdSet:
    hashes = hash_ids(sorted(ids))
    return IdSet(hashes[:, 0], hashes[:, 1])


class Changes(RuleBasedStateMachine):
    """Beside the set a plain one; the sketch is asked for at any time, so it is kept up from anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.own = MemorySet(SALT)
        self.plain: set[bytes] = set()
        self.is_sketched = False

    @rule(ids=some)
    def add(self, ids: list[bytes]) -> None:
        """Also what is there, and one of them twice in a call: XOR alone would cancel it."""
        assert self.own.add(ids) == list(dict.fromkeys(one for one in ids if one not in self.plain))
        self.plain |= set(ids)

    @rule(ids=some)
    def remove(self, ids: list[bytes]) -> None:
        assert set(self.own.remove(ids)) == set(ids) & self.plain
        self.plain -= set(ids)

    @precondition(lambda self: not self.is_sketched)
    @rule()
    def sketch(self) -> None:
        self.is_sketched = True
        self.own.sketch(CELLS)
        self.own.estimate()

    @invariant()
    def holds_what_it_says(self) -> None:
        self.own.check()

    @invariant()
    def is_what_it_would_be_anew(self) -> None:
        fresh = anew(self.plain)
        assert self.own.digest() == fresh.digest() == Digest.of(self.plain)
        assert set(self.own) == self.plain
        assert len(self.own) == len(self.plain)
        if self.is_sketched:
            assert bytes(self.own.sketch(CELLS)) == bytes(fresh.sketch(SALT, CELLS))
            assert bytes(self.own.sketch(LARGER)) == bytes(fresh.sketch(SALT, LARGER))
            assert bytes(self.own.estimate()) == bytes(fresh.estimate(SALT))

    @invariant()
    def its_ranges_are_those_of_the_plain_set(self) -> None:
        prefixes = [ALL, *ALL.children(4)]
        fresh = anew(self.plain)
        assert self.own.digests(prefixes) == fresh.ranges(prefixes)
        for prefix in prefixes:
            assert self.own.ids(prefix).tolist() == fresh.highs(prefix).tolist()


Changes.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=20, deadline=None
)
TestChanges = Changes.TestCase


@given(some, some)
def test_ids_are_found_by_their_hashes(here: list[bytes], wanted: list[bytes]) -> None:
    own = MemorySet(SALT, here)
    highs = hash_ids(wanted)[:, 0]
    both = set(here) & set(wanted)
    assert set(own.having(highs)) == both
    assert set(own.named(Prefix(64, high) for high in highs.tolist())) == both
    assert set(own.named([ALL])) == set(here)


def test_a_prefix_of_several_ids_names_none() -> None:
    """A short id may be that of two: whoever removes must not guess."""
    own = MemorySet(SALT, POOL)
    prefixes = ALL.children(4)
    for prefix, found in zip(prefixes, own.digests(prefixes), strict=True):
        assert len(own.named([prefix])) == (1 if found.count == 1 else 0)


def test_what_is_frozen_does_not_change() -> None:
    own = MemorySet(SALT, POOL[:10])
    frozen, estimate = own.frozen(), own.estimate()
    before = frozen.digest(), bytes(estimate)
    own.add(POOL[10:])
    own.remove(POOL[:5])
    assert (frozen.digest(), bytes(estimate)) == before
    assert own.digest() != before[0]


async def test_an_answerer_over_memory_answers_by_cost() -> None:
    chance = random.Random(3)
    ids = [chance.randbytes(24) for _ in range(3_000)]
    own, theirs = MemorySet(SALT, ids), MemorySet(SALT, ids[3:])
    answerer = Answerer(InMemory(own))
    assert (await answerer.verify(own.digest())).mode is Mode.EQUAL
    assert (await answerer.verify(Digest.empty())).mode is Mode.SURPLUS
    told = await answerer.verify(theirs.digest(), bytes(theirs.estimate()))
    assert told.mode is Mode.SKETCH
    assert len(told.payload) < 1_000
    # Without an estimate it cannot know, and sends what is good for most.
    assert len((await answerer.verify(theirs.digest())).payload) > 10 * len(told.payload)
    own.remove(ids[1:])
    told = await answerer.verify(theirs.digest(), bytes(theirs.estimate()))
    assert told.mode is Mode.LIST
    assert told.payload == own.ids(ALL).astype(">u8").tobytes()
    own.remove(ids)
    assert (await answerer.verify(theirs.digest())).mode is Mode.EMPTY
    assert np.frombuffer((await answerer.lists([ALL]))[0], ">u8").tolist() == []


@pytest.mark.parametrize("broken", ["digest", "sketch", "estimate", "sorted", "names"])
def test_ms1_a_broken_state_is_found(broken: str) -> None:
    own, other = MemorySet(SALT, [b"a", b"b"]), MemorySet(SALT, [b"a", b"c"])
    for one in (own, other):
        one.sketch(CELLS)
        one.estimate()
        one.check()
    match broken:
        case "digest":
            own._digest = other._digest
        case "sketch":
            own._sketch = other._sketch
        case "estimate":
            own._estimate = other._estimate
        case "sorted":
            own._frozen = other.frozen()
        case _:
            own._names = []
    with pytest.raises(AssertionError, match="MS1"):
        own.check()
