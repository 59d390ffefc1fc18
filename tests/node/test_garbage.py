"""Python's garbage collector in a node: it looks at little at a time, and rings go all the same."""

import gc
import weakref

import pytest

from moorline.limits import (
    GARBAGE_APART_MAX,
    GARBAGE_KEPT_MAX,
    GARBAGE_WAIT_MS_MAX,
)
from moorline.net.clock import monotonic_ms
from moorline.node import garbage as room
from moorline.node.garbage import Garbage


class Ring:
    """Refers to itself: no count of references takes it away."""

    def __init__(self) -> None:
        self.ring = self


def busy() -> float:
    """A process that has used all the time there was."""
    return monotonic_ms() / 1_000


@pytest.mark.slow
def test_a_start_does_not_look_at_what_was_imported() -> None:
    walked: list[int] = []

    def began(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            walked.append(len(gc.get_objects()))

    alive = [[number] for number in range(20_000)]
    gc.callbacks.append(began)
    try:
        with Garbage().kept_small():
            pass
    finally:
        gc.callbacks.remove(began)
    assert walked
    assert max(walked) < len(alive) // 2


@pytest.mark.slow
def test_what_lives_long_is_walked_over_once() -> None:
    """Of ever more objects that live, no collection walks over more than a few rounds of new ones."""
    walked: list[int] = []

    def began(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            walked.append(len(gc.get_objects()))

    with Garbage().kept_small() as garbage:
        young, middle, _ = gc.get_threshold()
        gc.callbacks.append(began)
        try:
            alive = [[number] for number in range(20 * young * middle)]
        finally:
            gc.callbacks.remove(began)
        assert garbage.apart > len(alive) // 2
    assert len(walked) > middle
    assert max(walked) < GARBAGE_KEPT_MAX + 4 * young * middle < len(alive)


@pytest.mark.slow
def test_rings_of_short_lives_go_by_themselves() -> None:
    with Garbage().kept_small():
        ring = weakref.ref(Ring())
        young, middle, _ = gc.get_threshold()
        for number in range(4 * young * middle):
            if ring() is None:
                break
            _kept = [[number] for number in range(young)]
        assert ring() is None


@pytest.mark.slow
def test_a_ring_that_was_set_apart_goes_when_all_is_looked_at() -> None:
    with Garbage().kept_small() as garbage:
        rings = [Ring() for _ in range(2 * GARBAGE_KEPT_MAX)]
        gc.collect()
        last = weakref.ref(rings[-1])
        rings.clear()
        gc.collect()
        assert last() is not None, "it is set apart"
        assert garbage.look_at_all() >= 2 * GARBAGE_KEPT_MAX
        assert last() is None
        assert garbage.apart == 0


@pytest.mark.slow
def test_all_is_looked_at_when_nobody_uses_the_node_and_else_once_a_day() -> None:
    garbage, now_ms = Garbage(cpu_s=lambda: 0.0), monotonic_ms()
    assert not garbage.is_time(now_ms + 5_000), "nothing was set apart"
    garbage.apart = GARBAGE_APART_MAX
    assert garbage.is_time(now_ms + 10_000)
    used_s = 0.0

    def used() -> float:
        nonlocal used_s
        used_s += GARBAGE_WAIT_MS_MAX / 1_000
        return used_s

    garbage = Garbage(cpu_s=used)
    garbage.look_at_all()
    garbage.apart = GARBAGE_APART_MAX
    assert not garbage.is_time(now_ms + 5_000)
    assert not garbage.is_time(now_ms + GARBAGE_WAIT_MS_MAX)
    assert garbage.is_time(now_ms + 5_000 + GARBAGE_WAIT_MS_MAX)
    gc.unfreeze()


@pytest.mark.slow
def test_a_node_that_is_never_idle_keeps_no_more_garbage_than_it_has_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "GARBAGE_APART_MAX", 1_000)
    with Garbage(cpu_s=busy).kept_small() as garbage:
        before = gc.get_freeze_count()
        rings = [Ring() for _ in range(before // 4)]
        gc.collect()
        assert garbage.apart > 1_000
        assert not garbage.is_time(monotonic_ms() + 1), "few, beside what there is"
        rings += [Ring() for _ in range(before + 1_000)]
        gc.collect()
        count = len(rings)
        rings.clear()
        assert garbage.is_time(monotonic_ms() + 2)
        assert garbage.look_at_all() >= count


@pytest.mark.slow
def test_behind_the_node_all_is_as_python_has_it() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    with Garbage().kept_small():
        assert gc.get_freeze_count()
        assert (gc.get_threshold(), gc.callbacks) != before
    assert (gc.get_threshold(), gc.callbacks) == before
    assert not gc.get_freeze_count()
