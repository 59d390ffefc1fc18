"""Room: console. What a node did in the last minutes, so that a plot is whole when somebody begins to look.

figures = Figures(metrics, home)
await figures.step()              every FIGURES_STEP_MS, whether anybody looks or not
await figures.read(call, since)   the steps behind that one, and what the node has at the moment

A step costs some ten numbers read and kept: a ring of 7 KiB. All else is found when somebody asks.
"""

import logging
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from moorline.limits import FIGURES_LATELY_STEPS, FIGURES_STEP_MS, FIGURES_STEPS_MAX
from moorline.metrics import Metrics
from moorline.net.clock import monotonic_ms
from moorline.net.slices import in_slices
from moorline.wire.view import FiguresRead, NodeNow

log = logging.getLogger("moorline.console")

COUNTED: Final = (
    "messages_stored_total",
    "messages_delivered_total",
    "topic_messages_published_total",
)
SUMMED: Final = ("topic_messages_delivered_total",)
TIMED: Final = ("queue_commit_seconds", "stream_commit_seconds")
SERIES: Final = len(COUNTED) + len(SUMMED) + len(TIMED)

Buckets = list[tuple[float, float]]


class Figures:
    """The steps of one node, oldest first in a ring."""

    def __init__(
        self, metrics: Metrics, home: str, now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._metrics = metrics
        self._home = home
        self._now_ms = now_ms
        self._ring = [array("f", bytes(4 * FIGURES_STEPS_MAX)) for _ in range(SERIES)]
        self._step = 0
        self._before: list[float] = []
        self._at_ms = now_ms()
        self._times: list[deque[Buckets]] = [deque(maxlen=FIGURES_LATELY_STEPS) for _ in TIMED]

    async def keep(self) -> None:
        """A step, whatever becomes of it: whoever calls this again and again goes on."""
        try:
            await self.step()
        except Exception:
            # Without it the plots would stand still, and nothing else would say so.
            log.exception("the figures of the last minutes were not kept")

    async def step(self) -> None:
        metrics, now_ms = self._metrics, self._now_ms()
        totals = [metrics.now(name) for name in COUNTED]
        totals += [await in_slices(metrics.sum_now(name)) for name in SUMMED]
        before, self._before = self._before, totals
        past_s = max(1, now_ms - self._at_ms) / 1_000
        self._at_ms = now_ms
        # A sum over what is open falls when some of it ends.
        points = [
            max(0.0, after - then) / past_s
            for after, then in zip(totals, before or totals, strict=True)
        ]
        for name, times in zip(TIMED, self._times, strict=True):
            times.append(metrics.buckets(name))
            points.append(slowest_ms(times[0], times[-1]))
        place = self._step % FIGURES_STEPS_MAX
        for ring, point in zip(self._ring, points, strict=True):
            ring[place] = point
        self._step += 1

    async def read(self, call: int, since: int) -> FiguresRead:
        metrics = self._metrics
        if since > self._step:
            since = 0  # of a run before: this one begins anew
        lag = await in_slices(metrics.sum_now("group_lag"))
        # Behind the wait: all of it is of one moment.
        first = max(since, self._step - FIGURES_STEPS_MAX, 0)
        places = [step % FIGURES_STEPS_MAX for step in range(first, self._step)]
        return FiguresRead(
            call,
            self._home,
            self._step,
            FIGURES_STEP_MS,
            [[round(ring[place], 2) for place in places] for ring in self._ring],
            NodeNow(
                queues=int(metrics.now("queues")),
                connections=int(metrics.now("connections") + metrics.now("websockets")),
                groups_led=int(metrics.now("groups_led")),
                group_lag=int(lag),
                paths=int(metrics.now("resolver_paths")),
                tables=int(metrics.now("records_tables")),
                memory_bytes=metrics.memory_bytes(),
            ),
        )

    @property
    def newest(self) -> int:
        return self._step


def slowest_ms(before: Buckets, after: Buckets) -> float:
    """Within how many milliseconds 99 of 100 were that came between two looks at a histogram."""
    grown = [
        (seconds, count - then)
        for (seconds, count), (_, then) in zip(after, before or after, strict=True)
    ]
    if not grown or grown[-1][1] <= 0:
        return 0.0
    enough = 0.99 * grown[-1][1]
    bounds = [seconds for seconds, upto in grown if upto >= enough]
    # What took longer than the last bound is shown as that.
    finite = [seconds for seconds, _ in grown[:-1]]
    return 1_000 * min(bounds[0], finite[-1])
