"""The entries of a publisher: their digest, and sketches that are made while they change."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.directory.entry_set import EntrySet
from moorline.core.directory.path import entry_id
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.memory_set import MemorySet
from moorline.core.sets.prefix import ALL, Prefix
from moorline.limits import ENTRIES_HASHED_AT_ONCE

SALT = b"0123456789abcdef"
PATHS = st.sampled_from([f"/{letter}" for letter in "abcdef"])
CHANGES = st.lists(st.tuples(st.booleans(), PATHS, st.integers(0, 3)), max_size=30)


def model_of(entries: EntrySet) -> MemorySet:
    return MemorySet(entries.salt, [entry_id(path, flags) for path, flags in entries.items()])


@given(CHANGES)
def test_the_digest_is_that_of_the_entries(changes: list[tuple[bool, str, int]]) -> None:
    entries, model = EntrySet(SALT), dict[str, int]()
    for is_put, path, flags in changes:
        if is_put:
            changed, _ = entries.change([(path, flags)], [])
            assert changed == ([(path, flags)] if model.get(path) != flags else [])
            model[path] = flags
        else:
            _, gone = entries.change([], [path])
            assert gone == ([path] if model.pop(path, None) is not None else [])
        assert dict(entries.items()) == model
        wanted = Digest.of(entry_id(path, flags) for path, flags in model.items())
        assert entries.digest() == wanted


def test_what_changes_while_a_sketch_is_made_is_in_it() -> None:
    entries = EntrySet(SALT)
    entries.change([(f"/{number}", 0) for number in range(3 * ENTRIES_HASHED_AT_ONCE)], [])
    steps = entries.summing()
    next(steps)
    entries.change([("/new", 2), ("/5", 1)], ["/0", f"/{3 * ENTRIES_HASHED_AT_ONCE - 1}"])
    for _ in steps:
        entries.change([("/newer", 0)], ["/7"])
    model = model_of(entries)
    assert bytes(entries.sketch(63)) == bytes(model.sketch(63))
    assert bytes(entries.estimate()) == bytes(model.estimate())
    entries.change([("/last", 0)], [])
    assert bytes(entries.sketch(63)) == bytes(model_of(entries).sketch(63))


def test_entries_are_named_by_their_hashes() -> None:
    entries = EntrySet(SALT)
    entries.change([("/a", 0), ("/b", 1), ("/c", 2)], [])
    steps = entries.hashing()
    try:
        while True:
            next(steps)
    except StopIteration as end:
        names, hashes = end.value
    entries.freeze(names, IdSet(hashes[:, 0], hashes[:, 1]))
    one = int(hashes[names.index("/b")][0])
    assert entries.named([Prefix(48, one >> 16)]) == ["/b"]
    assert sorted(entries.named([ALL])) == ["/a", "/b", "/c"]
    assert entries.named([Prefix(64, one ^ 1)]) == []
    assert entries.frozen is not None
    assert np.array_equal(np.sort(entries.frozen.high), np.sort(hashes[:, 0]))
    entries.change([], ["/a"])
    assert entries.frozen is None
