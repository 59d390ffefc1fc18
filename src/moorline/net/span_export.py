"""Room: net. Spans on their way to a collector: a bounded queue, and one task that posts what is in it.

Who adds a span never waits. What does not fit, and what a collector did not take, is counted and gone: a
collector that is dead, slow or wrong costs a node that many spans of memory, and one call at a time.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from moorline.config.trace import Trace
from moorline.core.trace import Span, encoded
from moorline.limits import (
    TRACE_BATCH_MS,
    TRACE_BATCH_SPANS_MAX,
    TRACE_POST_MS,
    TRACE_SPANS_MAX,
    TRACED_MESSAGES_PER_S_MAX,
)
from moorline.net.outgoing import CallFailed, Outgoing
from moorline.net.tls import client_context
from moorline.version import __version__

log = logging.getLogger("moorline.net")

_HEADERS = {"content-type": "application/json"}


class SpanExport:
    """Sends what is added, in batches."""

    def __init__(self, settings: Trace, resource: Mapping[str, str]) -> None:
        self._settings = settings
        self._resource = {**resource, "service.name": settings.service}
        self._spans: deque[Span] = deque()
        self._outgoing = Outgoing(
            client_context(Path(settings.ca) if settings.ca else None, None, None),
            timeout_ms=TRACE_POST_MS,
            at_once_max=1,
        )
        self._is_told = False
        """That the collector does not answer: once, until it does."""
        self.sent = 0
        self.dropped = 0
        """Spans that had no room, or that the collector did not take."""
        self.failures = 0
        """Posts that failed."""
        self.passed_over = 0
        """How often somebody had more to trace than there was room for in its second."""
        self._second = 0
        self._left = 0

    def has_room(self, now_us: int) -> bool:
        """Takes a place of this second: of all messages and deliveries that the node traces in it."""
        second = now_us // 1_000_000
        if second != self._second:
            self._second, self._left = second, TRACED_MESSAGES_PER_S_MAX
        if not self._left:
            self.passed_over += 1
            return False
        self._left -= 1
        return True

    def add(self, span: Span) -> None:
        if len(self._spans) >= TRACE_SPANS_MAX:
            self.dropped += 1
            return
        self._spans.append(span)

    @property
    def waiting(self) -> int:
        return len(self._spans)

    async def send_forever(self) -> None:
        while True:
            await asyncio.sleep(TRACE_BATCH_MS / 1_000)
            try:
                while self._spans:
                    await self.send()
            except Exception:
                # Without this task every span would be dropped from now on, and nothing else would say so.
                log.exception("spans were not sent")

    async def send(self) -> None:
        """One batch; what is not taken is not tried again."""
        count = min(len(self._spans), TRACE_BATCH_SPANS_MAX)
        spans = [self._spans.popleft() for _ in range(count)]
        try:
            # In a thread: a full batch takes longer to encode than others shall wait for their turn.
            body = await asyncio.to_thread(encoded, spans, self._resource, __version__)
            await self._outgoing.post(self._settings.endpoint, body, _HEADERS)
        except CallFailed as error:
            self.failures += 1
            self.dropped += count
            if not self._is_told:
                log.warning("the collector of traces takes nothing", extra={"error": str(error)})
            self._is_told = True
            return
        if self._is_told:
            log.info("the collector of traces takes spans again")
        self._is_told = False
        self.sent += count

    async def close(self) -> None:
        await self._outgoing.close()


@contextlib.asynccontextmanager
async def span_export(
    settings: Trace, resource: Mapping[str, str]
) -> AsyncIterator[SpanExport | None]:
    """None where no collector is set. What waits at the end is sent, if the collector takes it."""
    if not settings.endpoint:
        yield None
        return
    export = SpanExport(settings, resource)
    sending = asyncio.create_task(export.send_forever())
    try:
        yield export
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        if export.waiting:
            await export.send()
        await export.close()
