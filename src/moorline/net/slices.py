"""Room: net. Long work on the loop, in slices: others have their turn between two of them.

    rows = await in_slices(self._rows(call))      `_rows` yields wherever it may be interrupted

Whoever walks over what a client, or the store, can make long is a generator and runs here. Only one slice is
done in a turn of the loop, however many have long work: a thousand clients that list everything slow each
other down, and nobody else.
"""

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar
from weakref import WeakKeyDictionary

from moorline.limits import SLICE_MS

Result = TypeVar("Result")

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Whose slice it is; a lock is fair, so that all come round. Of a loop, since it is what is protected."""


async def in_slices(steps: Generator[object, None, Result]) -> Result:
    """Runs it to its end and returns what it returns; each step is to be far shorter than a slice."""
    turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    try:
        while True:
            async with turn:
                ends_ns = time.monotonic_ns() + SLICE_MS * 1_000_000
                next(steps)
                while time.monotonic_ns() < ends_ns:
                    next(steps)
                # The turn is kept over it: the next one's slice is not done in the same turn of the loop.
                await asyncio.sleep(0)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        steps.close()
