"""A set of ids by their hashes: slices, digests of ranges, and what a short id stands for."""

import random

import numpy as np

from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.prefix import Prefix
from moorline.core.sets.sketch import Salt, Words, short_ids

SALT = Salt(bytes(range(16)))


def drawn(seed: int, count: int) -> tuple[Words, Words]:
    chance = random.Random(seed)
    words = np.array([chance.getrandbits(64) for _ in range(2 * count)], np.uint64)
    return words[:count], words[count:]


def test_the_children_of_a_prefix_make_up_its_digest() -> None:
    ids = IdSet(*drawn(1, 500))
    whole = Prefix(0, 0)
    parts = ids.ranges(whole.children(4))
    assert sum(part.count for part in parts) == len(ids) == 500
    mixed = 0
    for part in parts:
        mixed ^= part.hash
    assert [(one.count, one.hash) for one in ids.ranges([whole])] == [(500, mixed)]
    assert sum(len(ids.highs(prefix)) for prefix in whole.children(4)) == 500


def test_the_order_of_the_ids_does_not_matter() -> None:
    high, low = drawn(2, 100)
    ids, turned = IdSet(high, low), IdSet(high[::-1], low[::-1])
    assert ids.digest() == turned.digest()
    assert (high[ids.order] == ids.high).all()
    assert (low[ids.order] == ids.low).all()


def test_an_empty_set_has_the_empty_digest() -> None:
    ids = IdSet(*drawn(3, 0))
    assert ids.digest() == Digest.empty()
    assert [(one.count, one.hash) for one in ids.ranges([Prefix(0, 0)])] == [(0, 0)]


def test_short_ids_are_found_and_those_of_nobody_are_told() -> None:
    high, low = drawn(4, 50)
    ids = IdSet(high, low)
    strange = np.array([12345], np.uint64)
    found, missing = ids.of_shorts(np.concatenate([short_ids(ids.high[:3]), strange]))
    assert found.tolist() == ids.high[:3].tolist()
    assert missing.tolist() == [12345]


def test_a_sketch_of_any_size_is_that_of_the_same_set() -> None:
    ids = IdSet(*drawn(5, 80))
    assert bytes(ids.sketch(SALT, 60)) == bytes(ids.sketch(SALT, 5_040).folded(60))
    assert ids.sketch(SALT, 7_001).cells == 7_001
    assert ids.estimate(SALT).differences(IdSet(*drawn(6, 0)).estimate(SALT)) > 40
