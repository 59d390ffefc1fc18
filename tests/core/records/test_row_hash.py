"""The hash of a row, and the digest that rows come into and leave."""

import xxhash
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.records.row_hash import (
    RowDigest,
    digest_of_rows,
    hashed_bytes,
    row_hash,
    row_hashes,
)
from moorline.core.records.table import After, Before, Change, Key
from moorline.core.sets.digest import Digest
from moorline.core.sets.id_set import digest_of

keys = st.tuples(st.text(max_size=6), st.text(max_size=6))
rows = st.dictionaries(keys, st.integers(0, 1 << 62), max_size=20)


def test_what_is_hashed_is_as_documented() -> None:
    data = b"\0\0\0\2\xc3\xa4" + b"\0\0\0\1b" + b"\0\0\0\0\0\0\1\0"
    assert hashed_bytes(("ä", "b"), 256) == data
    assert row_hash(7, ("ä", "b"), 256) == xxhash.xxh3_128_intdigest(data, 7)
    assert f"{row_hash(0x5EED, ('1',), 2):032x}" == xxhash.xxh3_128_hexdigest(
        b"\0\0\0\x011\0\0\0\0\0\0\0\2", 0x5EED
    )


@given(rows, st.integers(0, (1 << 64) - 1))
def test_many_at_once_are_the_same(table: dict[Key, int], salt: int) -> None:
    words = row_hashes(salt, table.items())
    scalar = [row_hash(salt, key, seq) for key, seq in table.items()]
    assert [int(high) << 64 | int(low) for high, low in words] == scalar
    assert digest_of(words[:, 0], words[:, 1]) == digest_of_rows(salt, table.items())


@given(keys, keys, st.integers(0, 9), st.integers(0, 9))
def test_keys_of_other_columns_are_others(one: Key, other: Key, seq: int, another: int) -> None:
    same = (one, seq) == (other, another)
    assert (hashed_bytes(one, seq) == hashed_bytes(other, another)) == same
    assert row_hash(1, one, seq) != row_hash(2, one, seq)


@given(rows, rows)
def test_a_digest_rolls_by_changes(before: dict[Key, int], after: dict[Key, int]) -> None:
    rolled = RowDigest(3, digest_of_rows(3, before.items()))
    for key in {*before, *after}:
        was = Before(before[key], ()) if key in before else None
        now = After(after[key], (), b"") if key in after else None
        rolled.roll(Change(key, was, now), was_in=True, is_in=True)
    assert rolled.digest() == digest_of_rows(3, after.items())
    assert rolled.is_sound


def test_a_digest_of_other_rows_is_not_sound() -> None:
    rolled = RowDigest(3)
    rolled.leave(("1",), 1)
    assert not rolled.is_sound
    assert rolled.digest() != Digest.empty()
