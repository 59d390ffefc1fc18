"""Batches that wait for one subscriber: bounds, order, and folding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.values.batch import Batch, Outlet, fold


def batch(*updates: tuple[int, int], size_bytes: int = 10) -> Batch:
    return Batch([one for one, _ in updates], [value for _, value in updates], size_bytes)


def test_batches_leave_whole_and_in_order() -> None:
    outlet = Outlet()
    batches = [batch((place, place)) for place in range(10)]
    assert all(outlet.put(one, 0) for one in batches)
    assert [outlet.take() for _ in range(10)] == batches
    assert outlet.take() is None
    assert outlet.waiting_bytes == 0


def test_a_full_outlet_takes_no_more() -> None:
    outlet = Outlet(batches_max=2)
    assert outlet.put(batch((1, 1)), 5)
    assert outlet.put(batch((1, 2)), 6)
    assert not outlet.put(batch((1, 3)), 7)
    assert outlet.waits_since_ms == 5
    assert len(outlet) == 2


def test_bytes_are_bounded_and_a_long_batch_waits_alone() -> None:
    outlet = Outlet(bytes_max=100)
    assert outlet.put(batch((1, 1), size_bytes=500), 0)
    assert not outlet.put(batch((1, 2), size_bytes=1), 0)
    outlet.check()
    assert outlet.take() is not None
    assert outlet.put(batch((1, 2), size_bytes=60), 0)
    assert not outlet.put(batch((1, 3), size_bytes=60), 0)
    outlet.check()


def test_a_conflating_outlet_keeps_the_latest_and_its_age() -> None:
    outlet = Outlet(is_conflating=True, batches_max=2)
    for at_ms, value in enumerate(range(100, 110)):
        assert outlet.put(batch((1, value), (at_ms + 2, value)), at_ms)
        outlet.check()
    assert outlet.waits_since_ms == 0
    seen = []
    while (one := outlet.take()) is not None:
        seen += list(zip(one.ids, one.values, strict=True))
    assert dict(seen)[1] == 109
    assert len(dict(seen)) == 11


def test_what_is_too_much_even_when_folded_is_refused() -> None:
    outlet = Outlet(is_conflating=True, batches_max=8, bytes_max=30)
    assert outlet.put(batch((1, 1), size_bytes=20), 0)
    assert not outlet.put(batch((2, 2), size_bytes=20), 0)
    assert outlet.put(batch((1, 2), size_bytes=20), 0)


def test_what_is_told_anew_is_not_told_as_it_was_before() -> None:
    """Given up and subscribed to again while its batches wait, a value must not go back in time."""
    outlet = Outlet()
    other = batch((3, 3))
    for one in (batch((1, 1), (2, 1)), batch((1, 2)), other):
        assert outlet.put(one, 7)
    outlet.leave_out([1])
    outlet.check()
    assert outlet.waits_since_ms == 7
    first = outlet.take()
    assert first is not None
    assert (first.ids, first.values, first.frames) == ([2], [1], None)
    assert outlet.take() is other
    assert outlet.take() is None


def test_a_broken_outlet_is_told() -> None:
    outlet = Outlet(batches_max=1)
    outlet.put(batch((1, 1)), 0)
    outlet._waiting_bytes += 1
    with pytest.raises(AssertionError, match="V3"):
        outlet.check()


def test_folding_orders_by_the_last_change() -> None:
    folded = fold([batch((1, 1), (2, 1)), batch((1, 2)), batch((3, 1))])
    assert folded.ids == [2, 1, 3]
    assert folded.values == [1, 2, 1]


UPDATES = st.lists(st.tuples(st.integers(1, 5), st.integers()), min_size=1, max_size=5)


@given(
    st.lists(st.one_of(st.none(), UPDATES), max_size=40),
    st.booleans(),
    st.integers(1, 4),
    st.integers(10, 60),
)
def test_order_and_bounds_hold_whatever_is_put_and_taken(
    steps: list[list[tuple[int, int]] | None], is_conflating: bool, batches_max: int, bytes_max: int
) -> None:
    """V1, V2, V3: `None` takes, anything else is put."""
    outlet = Outlet(is_conflating=is_conflating, batches_max=batches_max, bytes_max=bytes_max)
    put: list[tuple[int, int]] = []
    taken: list[tuple[int, int]] = []
    for place, step in enumerate([*steps, *[None] * batches_max]):
        if step is None:
            if (one := outlet.take()) is not None:
                taken += zip(one.ids, one.values, strict=True)
        elif outlet.put(batch(*step), place):
            put += step
        outlet.check()
    if not is_conflating:
        assert taken == put
    # Of each id, what was taken is in the order in which it was put, and ends with the last.
    for number in range(1, 6):
        mine = [value for each, value in put if each == number]
        got = [value for each, value in taken if each == number]
        rest = iter(mine)
        assert all(value in rest for value in got)
        assert got[-1:] == mine[-1:]
