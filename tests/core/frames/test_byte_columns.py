"""Parts of a buffer, many at once: the same as one by one, wherever they lie and however short they are."""

from functools import reduce
from operator import xor

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from moorline.core.frames import byte_columns as parts_module
from moorline.core.frames.byte_columns import PADDING_BYTES, ByteColumn
from moorline.limits import COLUMN_ONE_BY_ONE_MAX

CUTS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=30)


@pytest.fixture(params=["one by one", "all at once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 10**9 if request.param == "one by one" else 0
    monkeypatch.setattr(parts_module, "COLUMN_ONE_BY_ONE_MAX", most)


def parts_of(data: bytes, cuts: list[tuple[int, int]]) -> tuple[ByteColumn, list[bytes]]:
    """Parts that overlap, touch the end, or are empty; and what they are."""
    starts = [min(start, len(data)) for start, _ in cuts]
    stops = [
        min(start + length, len(data)) for start, (_, length) in zip(starts, cuts, strict=True)
    ]
    lengths = np.array(stops, np.int64) - np.array(starts, np.int64)
    expected = [data[start:stop] for start, stop in zip(starts, stops, strict=True)]
    return ByteColumn(data, np.array(starts, np.int64), lengths), expected


@pytest.mark.usefixtures("way")
@settings(deadline=None)
@given(data=st.binary(max_size=200), cuts=CUTS, seed=st.integers(0, 2**64 - 1))
def test_parts_are_hashed_and_counted_as_one_by_one(
    data: bytes, cuts: list[tuple[int, int]], seed: int
) -> None:
    column, expected = parts_of(data, cuts)
    assert column.hashes(seed).tolist() == [xxhash.xxh3_64_intdigest(one, seed) for one in expected]
    assert column.xor() == reduce(xor, map(xxhash.xxh3_128_intdigest, expected), 0)
    values, places = column.distinct()
    assert values == list(dict.fromkeys(expected))
    assert [values[place] for place in places] == expected


@pytest.mark.usefixtures("way")
@settings(deadline=None)
@given(data=st.binary(max_size=200), cuts=CUTS, wrong=st.integers(0, 29))
def test_a_part_that_is_another_one_is_noticed(
    data: bytes, cuts: list[tuple[int, int]], wrong: int
) -> None:
    column, expected = parts_of(data, cuts)
    values = list(dict.fromkeys(expected))
    places = np.array([values.index(one) for one in expected], np.int64)
    assert column.are(values, places)
    if expected:
        at = wrong % len(expected)
        was = expected[at]
        others = [was + b"\0", was[:-1] if was else b"x"]
        others += [
            was[:place] + bytes([was[place] ^ 1]) + was[place + 1 :] for place in range(len(was))
        ]
        for other in others:
            places[at] = len(values)
            assert not column.are([*values, other], places)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    column = ByteColumn(kind(b"aabbbb"), np.array([0, 2, 5]), np.array([2, 3, 1]))
    assert column.distinct()[0] == [b"aa", b"bbb", b"b"]


def test_many_long_parts_and_short_ones_stand_in_one_column() -> None:
    data = bytes(range(256)) * 64
    starts = np.arange(0, len(data) - 64, 5)
    lengths = starts % 40
    column = ByteColumn(data, starts, lengths)
    assert len(starts) > COLUMN_ONE_BY_ONE_MAX
    expected = [data[one : one + one % 40] for one in starts.tolist()]
    assert [one.as_py() for one in column.views()] == expected
    assert column.hashes(7).tolist() == [xxhash.xxh3_64_intdigest(one, 7) for one in expected]


@given(values=st.lists(st.binary(max_size=30), max_size=30))
def test_arrow_copies_the_parts_as_they_are(values: list[bytes]) -> None:
    data = bytearray(b"".join(values) + bytes(PADDING_BYTES))
    lengths = np.array([len(one) for one in values], np.int64)
    copied = ByteColumn(data, np.cumsum(lengths) - lengths, lengths).views().cast(pa.binary())
    copied.validate(full=True)
    assert copied.to_pylist() == values
