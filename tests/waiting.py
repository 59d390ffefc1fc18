"""Waits for conditions: what a test does in place of a sleep."""

import asyncio
import time
from collections.abc import Awaitable, Callable

WITHIN_S = 60
"""Far more than any takes: it ends a test that would wait for ever."""
LOOK_S = 0.005


async def until(
    condition: Callable[[], object], what: str = "", within_s: float = WITHIN_S
) -> None:
    """Returns when the condition, which may be a coroutine function, is true; fails with what it was."""
    end = time.monotonic() + within_s
    while True:
        held = condition()
        if await held if isinstance(held, Awaitable) else held:
            return
        assert time.monotonic() < end, _told(what, within_s)
        await asyncio.sleep(LOOK_S)


def eventually(condition: Callable[[], object], what: str = "", within_s: float = WITHIN_S) -> None:
    """The same for tests without a loop."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, _told(what, within_s)
        time.sleep(LOOK_S)


def _told(what: str, within_s: float) -> str:
    return f"not within {within_s:g} s: {what or 'what the test waits for'}"
