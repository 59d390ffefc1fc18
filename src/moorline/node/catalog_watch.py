"""Room: node. Whether the catalog answers: asked by a question of its own, and known by its age.

A catalog that hangs does not say so, and whoever asks it something waits for half a minute. So a small
question is asked again and again, and one that is open for longer than a healthy catalog takes is told as
a problem while it is still open. It is not given up: its answer is the first sign that the catalog is back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moorline.errors import MoorlineError
from moorline.limits import CATALOG_LOOK_MS, CATALOG_SILENT_MS

log = logging.getLogger("moorline.node")


class CatalogWatch:
    """Asks by `ask`, whose answer does not matter; `now_ms` is a clock that only goes forward."""

    def __init__(self, ask: Callable[[], Awaitable[object]], now_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._asked_ms: int | None = None
        """Since when a question is open."""
        self._has_failed = False

    def silent(self) -> str:
        """The problem, if it is one."""
        is_late = (
            self._asked_ms is not None and self._now_ms() - self._asked_ms >= CATALOG_SILENT_MS
        )
        if not (is_late or self._has_failed):
            return ""
        return "the catalog does not answer: services, groups and sessions wait for it"

    async def look_forever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(CATALOG_LOOK_MS / 1_000)

    async def look(self) -> None:
        """One question, until it is answered or has failed."""
        self._asked_ms = self._now_ms()
        try:
            await self._ask()
            self._has_failed = False
        except (MoorlineError, OSError, TimeoutError):
            self._has_failed = True  # who needs an answer says what was wrong
        except Exception:
            self._has_failed = True
            log.exception("the catalog could not be asked whether it is there")
        finally:
            self._asked_ms = None
