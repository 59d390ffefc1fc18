"""Room: spark. The pace of a replay: when the next step may be published, and how many are staged ahead.

Pure: what the clock says comes in. A step is due when those before it have had their time, by a schedule that
begins with the first one. What is late is caught up on, so that the rate holds over a run; but not more than
a few seconds of it, so that a long pause of the node is not followed by a burst.
"""

import math

from moorline.limits import (
    REPLAY_AHEAD_S,
    REPLAY_AHEAD_STEPS_MAX,
    REPLAY_ARREARS_S,
)


class Schedule:
    """Messages a second, on average; 0 is as fast as it goes."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._due_s = -math.inf
        self._first_s = self._last_s = 0.0
        self._messages = self._last_messages = 0

    def wait_s(self, now_s: float) -> float:
        """How long the next step is too early."""
        return max(0.0, self._due_s - now_s) if self._rate else 0.0

    def published(self, count: int, now_s: float) -> None:
        """A step of so many messages was published just now."""
        if not self._messages:
            self._first_s = now_s
        self._last_s, self._last_messages = now_s, count
        self._messages += count
        if self._rate:
            # The first one sets the clock; and no more than the arrears that are allowed is made up for.
            due_s = self._due_s if self._messages > count else now_s
            self._due_s = max(due_s, now_s - REPLAY_ARREARS_S) + count / self._rate

    @property
    def rate_kept(self) -> float | None:
        """What it came to: the messages of all steps but the last had the time between first and last."""
        seconds = self._last_s - self._first_s
        if not self._rate or seconds <= 0:
            return None
        return round((self._messages - self._last_messages) / seconds, 1)


def steps_ahead(rate: int, messages: int, steps: int) -> int:
    """Steps that are staged by one job, when so many have had so many messages: enough to be published for
    longer than the next job takes."""
    if not rate:
        return 1
    if not steps:
        return REPLAY_AHEAD_STEPS_MAX // 8
    each = max(messages / steps, 1)
    return min(REPLAY_AHEAD_STEPS_MAX, max(1, math.ceil(REPLAY_AHEAD_S * rate / each)))
