"""Room: records. A step of a table that stays open for as long as somebody reads at its snapshot."""

import logging
from contextlib import AsyncExitStack
from typing import Self

from moorline.core.records.snapshot import Snapshot
from moorline.records.capture import Capture, Step

log = logging.getLogger("moorline.records")


class HeldStep:
    """Closed by whoever releases it last. Who opened it is the first of them."""

    step: Step

    def __init__(self) -> None:
        self.snapshot_id = ""
        """Known once it is exported."""
        self.can_export = False
        self._stack = AsyncExitStack()
        self._holders = 1

    @classmethod
    async def open(cls, capture: Capture, since: Snapshot, *, is_exported: bool) -> Self:
        held = cls()
        held.step = await held._stack.enter_async_context(
            capture.step(since, is_exported=is_exported)
        )
        step = held.step
        held.can_export = is_exported or (step.resync is None and not step.is_unchanged)
        return held

    async def export(self) -> None:
        self.snapshot_id = await self.step.export()

    def hold(self) -> None:
        assert self._holders > 0, "it is closed"
        self._holders += 1

    async def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            try:
                await self._stack.aclose()
            except Exception as error:
                # What was read was read; a connection that is lost now is the next step's to notice.
                log.debug("a step did not close", extra={"why": str(error)})
