"""Events and effects of a feed are values."""

import pytest

from moorline.core.records.feed_events import BeginScan, How, SendRows, Tick
from moorline.core.records.snapshot import Snapshot


def test_they_are_equal_by_what_they_say_and_do_not_change() -> None:
    one = BeginScan(1, How.FULL, 1, 1, Snapshot(1, 1), (1, 2))
    assert one == BeginScan(1, How.FULL, 1, 1, Snapshot(1, 1), (1, 2))
    assert Tick() == Tick()
    with pytest.raises(AttributeError):
        one.scan = 2  # type: ignore[misc]


def test_what_goes_to_many_is_one_effect() -> None:
    to = tuple(range(10_000))
    assert SendRows(to, 1, (("1",),), ()).to is to
