"""Room: net/http. Turns: whoever has sent more than is heard at once waits in one line for the next part.

    data comes ──► the line is empty: a part of it is heard at once
               └─► or else it waits; in each turn of the loop the line is walked for HTTP_TURN_MS

So what all connections of the port have sent takes one slice of a turn, however much it is and however many
they are, and whatever else the node does comes between two slices.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from moorline.limits import HTTP_TURN_MS
from moorline.net.clock import monotonic_ms


class Turns:
    """Of one port. Whoever waits stands in it once, and is not read from: so the line has a bound."""

    def __init__(self) -> None:
        self.taken = 0
        """Slices since the start."""
        self._loop = asyncio.get_running_loop()
        self._line: deque[Callable[[], None]] = deque()
        self._is_set = False
        """Whether the next slice is on its way, or under way."""

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits: who comes now stands behind it."""
        return bool(self._line)

    def wait(self, go_on: Callable[[], None]) -> None:
        self._line.append(go_on)
        if not self._is_set:
            self._is_set = True
            self._loop.call_soon(self._walk)

    def _walk(self) -> None:
        self.taken += 1
        ends_ms = monotonic_ms() + HTTP_TURN_MS
        try:
            while self._line:
                self._line.popleft()()
                if monotonic_ms() >= ends_ms:
                    break
        finally:
            self._is_set = bool(self._line)
            if self._is_set:
                self._loop.call_soon(self._walk)
