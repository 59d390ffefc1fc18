"""What a node remembers of its last minutes: steps, shares of times, and the end of the ring."""

import pytest

from moorline.console.figures import Figures, slowest_ms
from moorline.limits import FIGURES_STEPS_MAX
from moorline.metrics import Metrics


class Counting:
    def __init__(self) -> None:
        self.metrics = Metrics()
        self.sent, self.open = 0, [5.0]
        self.now_ms = 1_000
        self.metrics.watch("messages_stored_total", "Sent.", lambda: self.sent)
        self.metrics.add_up("topic_messages_delivered_total", "Delivered.", lambda: self.open)
        self.observe = self.metrics.latency("queue_commit_seconds", "Commits.")
        self.figures = Figures(self.metrics, "a", lambda: self.now_ms)

    async def step(self, sent: int = 0) -> None:
        self.sent += sent
        self.now_ms += 2_000
        await self.figures.step()


@pytest.fixture
def counting() -> Counting:
    return Counting()


async def test_a_step_is_what_grew_by_the_second(counting: Counting) -> None:
    await counting.step(sent=100)
    await counting.step(sent=10)
    await counting.step()
    found = await counting.figures.read(7, 0)
    assert (found.call, found.home, found.step) == (7, "a", 3)
    assert found.series[0] == [0, 5, 0], "what was before the first step is of nobody's time"


async def test_a_sum_of_what_is_open_does_not_grow_when_some_of_it_ends(counting: Counting) -> None:
    await counting.step()
    counting.open = [9.0]
    await counting.step()
    counting.open = []
    await counting.step()
    assert (await counting.figures.read(0, 0)).series[3] == [0, 2, 0]


async def test_only_the_steps_behind_one_are_told_and_all_to_who_knows_another_run(
    counting: Counting,
) -> None:
    for _ in range(5):
        await counting.step(sent=2)
    assert len((await counting.figures.read(0, 3)).series[0]) == 2
    assert (await counting.figures.read(0, 5)).series[0] == []
    assert len((await counting.figures.read(0, 900)).series[0]) == 5


async def test_the_ring_keeps_the_newest(counting: Counting) -> None:
    for number in range(FIGURES_STEPS_MAX + 7):
        await counting.step(sent=2 * number)
    found = await counting.figures.read(0, 0)
    assert found.step == FIGURES_STEPS_MAX + 7
    assert found.series[0] == [float(number) for number in range(7, FIGURES_STEPS_MAX + 7)]


async def test_a_time_is_that_of_99_of_100_lately(counting: Counting) -> None:
    await counting.step()
    for _ in range(99):
        counting.observe(0.0004)
    counting.observe(0.4)
    await counting.step()
    assert (await counting.figures.read(0, 0)).series[4][-1] == 0.5
    for _ in range(10):
        await counting.step()
    assert (await counting.figures.read(0, 0)).series[4][-1] == 0, "long ago"


def test_what_is_beyond_the_last_bound_is_shown_as_that() -> None:
    assert slowest_ms([], []) == 0
    assert (
        slowest_ms([(0.1, 0), (2.0, 0), (float("inf"), 0)], [(0.1, 0), (2.0, 0), (float("inf"), 3)])
        == 2_000
    )


def test_a_figure_of_a_part_that_is_not_there_is_0() -> None:
    metrics = Metrics()
    assert metrics.now("queues") == 0
    assert metrics.buckets("queue_commit_seconds") == []
    assert metrics.memory_bytes() > 1_000_000
