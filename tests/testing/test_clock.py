"""The clock that is moved by hand."""

import pytest

from moorline.testing import HandClock


def test_moves_only_by_hand() -> None:
    clock = HandClock(now_ms=5, wall_ms=1_000)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 1_000)
    clock.advance(10)
    assert (clock.now_ms(), clock.wall_ms()) == (15, 1_010)
    with pytest.raises(AssertionError):
        clock.advance(-1)


def test_only_the_wall_clock_jumps() -> None:
    clock = HandClock(now_ms=5, wall_ms=1_000)
    clock.jump(-600)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 400)
    clock.jump(3_600_000)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 3_600_400)
