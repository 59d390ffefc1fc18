"""Room: net. Long work on the loop, in slices: others have their turn between two of them.

    rows = await in_slices(self._rows(call), principal)      `_rows` yields wherever it may be interrupted

Whoever walks over what a client, or the store, can make long is a generator and runs here. Only one slice is
done in a turn of the loop, however many have long work: a thousand clients that list everything slow each
other down, and nobody else. Slices are shared among principals, and then among each one's work: who lists a
thousand times at once is one in the line, and not a thousand.
"""

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from moorline.limits import CROWDED_SLICE_MS, SLICE_MS
from moorline.net.fair_lock import FairLock
from moorline.net.thread_turns import are_quick

Result = TypeVar("Result")

NODES_OWN: Final = ""
"""Whose slices are the node's own: in the line it is one among the principals."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, FairLock] = WeakKeyDictionary()
"""Whose slice it is. Of a loop, since it is what is protected."""


async def in_slices(steps: Generator[object, None, Result], principal: str = NODES_OWN) -> Result:
    """Runs it to its end and returns what it returns; each step is to be far shorter than a slice.

    `principal` is who asked for it.
    """
    turn = _turns.setdefault(asyncio.get_running_loop(), FairLock())
    try:
        while True:
            async with turn.held_by(principal):
                slice_ms = min(CROWDED_SLICE_MS, SLICE_MS) if are_quick() else SLICE_MS
                ends_ns = time.monotonic_ns() + slice_ms * 1_000_000
                next(steps)
                while time.monotonic_ns() < ends_ns:
                    next(steps)
                # The turn is kept over it: the next one's slice is not done in the same turn of the loop.
                await asyncio.sleep(0)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def done(steps: Generator[object, None, Result]) -> Result:
    """Runs it to its end at once: for what is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
