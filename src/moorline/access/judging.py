"""Room: access. What runs by a right is judged again behind each change of rights, in slices.

judging = Judging(self._judge_all, turns.spawn)      `_judge_all` yields wherever it may be interrupted
table.on_change(judging.soon)
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from moorline.net.slices import in_slices

Walk = Callable[[], Generator[None, None, None]]


class Judging:
    """One walk at a time over everything that a room runs."""

    def __init__(self, walk: Walk, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._walk = walk
        self._spawn = spawn
        self._is_asked = False
        self.is_at_work = False

    def soon(self) -> None:
        """Rights have changed."""
        self._is_asked = True
        if not self.is_at_work:
            self.is_at_work = True
            self._spawn(self._work())

    async def _work(self) -> None:
        try:
            # What changes during a walk has one more walk behind it, and never two side by side.
            while self._is_asked:
                self._is_asked = False
                await in_slices(self._walk())
        finally:
            self.is_at_work = False
