"""A snapshot of Postgres, and what is behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.records.snapshot import Snapshot


def test_what_is_behind() -> None:
    snapshot = Snapshot.parse("100:104:101,103")
    assert [xid for xid in range(98, 107) if snapshot.is_behind(xid)] == [101, 103, 104, 105, 106]


@given(st.integers(1, 1 << 40), st.sets(st.integers(0, 50)), st.integers(0, 50))
def test_its_text_is_that_of_postgres(xmin: int, opened: set[int], beyond: int) -> None:
    open_ = tuple(sorted(xmin + one for one in opened))
    snapshot = Snapshot(xmin, max((xmin, *(one + 1 for one in open_))) + beyond, open_)
    assert Snapshot.parse(str(snapshot)) == snapshot


@pytest.mark.parametrize(
    "text", ["", "1:2", "1:2:3:4", "a:b:c", "0:1:", "5:4:", "1:9:3,2", "1:9:3,3", "2:9:1", "1:9:9"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a snapshot|values to unpack|invalid literal"):
        Snapshot.parse(text)
