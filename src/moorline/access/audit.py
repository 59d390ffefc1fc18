"""Room: access. The audit trail of a node: acts in, lines in files, and as messages of `$SYS/audit/KIND`.

    audit.heard(act)                 a login or a refusal: costs a look into a table, and never waits
    await audit.recorded(act)        a change of rights, or an operator's act, BEFORE it is done: returns when
                                     the line survives what the node promises
    async with open_audit(…) as audit

One task owns the machine and the files; the disk is only touched in a thread. Lines that the disk did not
take are counted, and the first line behind them says how many acts they were about. What `recorded` does
then is the operator's choice: with `go_on` it returns all the same, with `stop` it raises `NotAudited`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal

from moorline.core.access.audit import (
    Act,
    AuditLine,
    AuditProof,
    AuditTrail,
    Kind,
    Verdict,
    counted,
    encoded,
    line_of,
)
from moorline.core.access.quiet_logins import QuietLogins, is_quiet, is_quiet_line
from moorline.errors import DiskFull, NotAudited, TooManyFiles
from moorline.journal.audit import AuditCursor, AuditFiles, Page, Wanted, first_place, read_page
from moorline.journal.disk import Disk
from moorline.limits import (
    AUDIT_BATCH_LINES_MAX,
    AUDIT_BYTES_MAX,
    AUDIT_CLOSE_MS_MAX,
    AUDIT_LATE_MS,
    AUDIT_PENDING_LINES_MAX,
    AUDIT_RETRY_MS,
)
from moorline.net.clock import monotonic_ms, wall_ms

log = logging.getLogger("moorline.access")

Full = Literal["go_on", "stop"]
"""What happens to acts that must be recorded while the trail cannot be written."""
Publish = Callable[[str, bytes], Awaitable[None]]
"""Stores a body under a topic; awaited, and may fail."""
Clock = Callable[[], int]

TOPICS: Final = {kind.value: f"$SYS/audit/{kind.value}" for kind in Kind}
GAP: Final = "AuditGap"
"""The act of the line that says how many others are not there."""

_FAILURES: Final = (DiskFull, TooManyFiles, OSError)


class Audit:
    """The trail of one node."""

    def __init__(
        self,
        files: AuditFiles,
        disk: Disk,
        node: str,
        *,
        full: Full = "go_on",
        now_ms: Clock = monotonic_ms,
        wall_ms: Clock = wall_ms,
    ) -> None:
        self.full = full
        self.publish: Publish | None = None
        """Given by the node when its streams are open; lines before that are in the files alone."""
        self._files = files
        self._disk = disk
        self._node = node
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._trail = AuditTrail()
        self._quiet = QuietLogins()
        self._pending: deque[AuditLine] = deque()
        self._waiters: list[tuple[AuditLine, asyncio.Future[None]]] = []
        self._outgoing: deque[tuple[str, bytes]] = deque()
        self._wanted = asyncio.Event()
        """There is something to write."""
        self._at_once = asyncio.Event()
        """Somebody waits for it."""
        self._published = asyncio.Event()
        self._is_stopping = False
        self._is_over = False
        self._failure = ""
        self._gap: tuple[int, int, int] | None = None
        """Of the acts that no line has: how many, and the times of the first and the last."""
        self.lines = 0
        """Written since the start."""
        self.lost = 0
        """Acts since the start whose line was not written; each gap is told in the trail when it can be."""
        self.unpublished = 0
        """Lines since the start that are in the files and not in the stream."""

    @property
    def torn(self) -> int:
        return self._files.torn

    # --- what others call -------------------------------------------------------------------------

    def heard(self, act: Act) -> None:
        """A login or a refusal: in the file within a second, or counted."""
        heard = self._quiet.heard if is_quiet(act) else self._trail.heard
        self._add(heard(act, self._now_ms(), self._wall_ms()))

    async def recorded(self, act: Act) -> None:
        """A change of rights, or an operator's act: to be called before it is done."""
        assert act.kind in (Kind.GRANT, Kind.OPERATOR), "logins and refusals do not wait"
        await self._written(line_of(act, self._wall_ms()))

    async def looked(self, act: Act) -> None:
        """Before somebody is shown what is there: the first look of its kind waits for its line as an
        operator's act does, and those that follow within the sum are only added up. Whoever may look could
        otherwise fill the trail with its own lines, and drive out all others."""
        assert act.is_look, "what changes something is a line each"
        lines = self._trail.heard(act, self._now_ms(), self._wall_ms())
        own = lines.pop() if lines and lines[-1].count == 1 and lines[-1].act == act.act else None
        self._add(lines)
        if own is not None:
            await self._written(own)
        elif self._failure and self.full == "stop":
            raise _not_audited(self._failure)

    async def _written(self, line: AuditLine) -> None:
        if self._is_over:
            raise NotAudited(
                "nothing was done: the node is stopping, and its audit trail is closed"
            )
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((line, written))
        self._wanted.set()
        self._at_once.set()
        await written

    def problem(self) -> str:
        """For the page about the node's health; empty while all lines are written."""
        if not self._failure:
            return ""
        lost = self._gap[0] if self._gap else 0
        happens = "go on, and are only counted"
        if self.full == "stop":
            happens = "are refused"
        return (
            f"the audit trail cannot be written ({self._failure}): {lost} acts are not in it so far; "
            f"operators' acts and changes of rights {happens}"
        )

    async def first_place(self, wanted: Wanted) -> AuditCursor:
        return await asyncio.to_thread(first_place, self._disk, wanted)

    async def read(self, place: AuditCursor, wanted: Wanted) -> Page:
        """A part of the trail, bounded whatever is asked; what waits to be written is not in it."""
        return await asyncio.to_thread(read_page, self._disk, place, wanted)

    # --- the task that owns it --------------------------------------------------------------------

    async def write_forever(self) -> None:
        """Ends by `finish`, and never in the middle of a write: a thread cannot be taken back."""
        while not self._is_stopping:
            await self._something_due()
            await self._write()
        self._add([*self._trail.ended(), *self._quiet.ended()])
        while self._pending or self._waiters:
            await self._write()
        self._is_over = True

    async def publish_forever(self) -> None:
        """Apart from the files: a stream that is slow, or full, delays no line and loses none."""
        while True:
            await self._published.wait()
            self._published.clear()
            while self._outgoing and self.publish is not None:
                topic, body = self._outgoing.popleft()
                try:
                    await self.publish(topic, body)
                except Exception as error:
                    if not self.unpublished:
                        log.warning("a line of the audit trail was not published", exc_info=error)
                    self.unpublished += 1

    def finish(self) -> None:
        """The last lines, sums that are open included, and then no more."""
        self._is_stopping = True
        self._wanted.set()
        self._at_once.set()

    async def _something_due(self) -> None:
        """Until somebody waits, lines have been gathered for long enough, or a sum is over."""
        dues_ms = [due for due in (self._trail.due_ms, self._quiet.due_ms) if due is not None]
        due_ms = min(dues_ms, default=None)
        if not self._wanted.is_set():
            wait_ms = None if due_ms is None else max(0, due_ms - self._now_ms())
            if self._gap is not None:
                # Perhaps there is room again; whoever looks at the node's health should not wait for an act.
                wait_ms = AUDIT_RETRY_MS if wait_ms is None else min(wait_ms, AUDIT_RETRY_MS)
            await _within(self._wanted, wait_ms)
        if not self._at_once.is_set() and self._wanted.is_set():
            await _within(self._at_once, AUDIT_LATE_MS)
        now_ms = self._now_ms()
        self._add([*self._trail.looked(now_ms), *self._quiet.looked(now_ms)])

    async def _write(self) -> None:
        """One batch, those that somebody waits for first; what is left over is written next."""
        waiters = self._waiters[:AUDIT_BATCH_LINES_MAX]
        del self._waiters[: len(waiters)]
        room = min(AUDIT_BATCH_LINES_MAX - len(waiters), len(self._pending))
        batch = [line for line, _ in waiters]
        batch += [self._pending.popleft() for _ in range(room)]
        if self._waiters or self._pending:
            self._at_once.set()  # what did not fit has waited already
        else:
            self._at_once.clear()
            self._wanted.clear()
        if not batch and self._gap is None:
            return
        gap, self._gap = self._gap, None
        told = [*([self._gap_line(gap)] if gap else []), *batch]
        data = [encoded(line, self._node) for line in told]
        try:
            await asyncio.to_thread(self._files.append, data, durable=bool(waiters))
        except _FAILURES as error:
            self._failed(error, batch, gap)
            _tell(waiters, None if self.full == "go_on" else str(error))
            return
        if self._failure:
            log.warning("the audit trail is written again", extra={"acts_missing": gap and gap[0]})
        self._failure = ""
        self.lines += len(told)
        _tell(waiters, None)
        self._send_out(told, data)

    def _add(self, lines: list[AuditLine]) -> None:
        if not lines:
            return
        self._pending.extend(lines)
        while len(self._pending) > AUDIT_PENDING_LINES_MAX:
            self._lose([self._pending.popleft()])
        self._wanted.set()

    def _failed(
        self, error: Exception, batch: list[AuditLine], gap: tuple[int, int, int] | None
    ) -> None:
        if not self._failure:
            log.error("the audit trail cannot be written", extra={"error": str(error)})
        strerror = error.strerror if isinstance(error, OSError) else ""
        self._failure = strerror or ("no room left" if isinstance(error, DiskFull) else str(error))
        if gap is not None:
            self._widen(*gap)
        if batch:
            self._lose(batch)

    def _lose(self, lines: list[AuditLine]) -> None:
        self.lost += counted(lines)
        first_ms = min(line.wall_ms for line in lines)
        self._widen(counted(lines), first_ms, max(line.last_ms for line in lines))

    def _widen(self, count: int, first_ms: int, last_ms: int) -> None:
        if self._gap is not None:
            count += self._gap[0]
            first_ms, last_ms = min(first_ms, self._gap[1]), max(last_ms, self._gap[2])
        self._gap = (count, first_ms, last_ms)

    def _gap_line(self, gap: tuple[int, int, int]) -> AuditLine:
        count, first_ms, last_ms = gap
        return AuditLine(
            Kind.OPERATOR.value,
            first_ms,
            last_ms,
            count,
            f"$node/{self._node}",
            AuditProof.NODE.value,
            "",
            GAP,
            "/admin/audit",
            Verdict.FAILED.value,
        )

    def _send_out(self, lines: list[AuditLine], data: list[bytes]) -> None:
        if self.publish is None:
            return
        for line, body in zip(lines, data, strict=True):
            if not is_quiet_line(line):
                self._outgoing.append((TOPICS[line.kind], body[:-1]))
        while len(self._outgoing) > AUDIT_PENDING_LINES_MAX:
            self._outgoing.popleft()
            self.unpublished += 1
        self._published.set()


@contextlib.asynccontextmanager
async def open_audit(
    disk: Disk,
    node: str,
    *,
    sync: bool,
    full: Full = "go_on",
    bytes_max: int = AUDIT_BYTES_MAX,
    now_ms: Clock = monotonic_ms,
    wall_ms: Clock = wall_ms,
) -> AsyncIterator[Audit]:
    """The trail in that folder, open until the end, and then written to its last sum."""
    files = AuditFiles(disk, sync=sync, bytes_max=bytes_max)
    await asyncio.to_thread(files.open)
    if files.torn:
        log.warning("the last line of the audit trail was torn by a crash: it is kept and ended")
    audit = Audit(files, disk, node, full=full, now_ms=now_ms, wall_ms=wall_ms)
    writing = asyncio.create_task(audit.write_forever())
    publishing = asyncio.create_task(audit.publish_forever())
    try:
        yield audit
    finally:
        publishing.cancel()
        audit.finish()
        # In bounded time: a disk that hangs keeps its thread and its file, and not the node.
        done, _ = await asyncio.wait([writing], timeout=AUDIT_CLOSE_MS_MAX / 1_000)
        if done:
            files.close()
            writing.result()
        else:
            log.error("the last lines of the audit trail were not written in time")


async def _within(event: asyncio.Event, wait_ms: int | None) -> None:
    try:
        async with asyncio.timeout(None if wait_ms is None else wait_ms / 1_000):
            await event.wait()
    except TimeoutError:
        return


def _tell(waiters: list[tuple[AuditLine, asyncio.Future[None]]], failure: str | None) -> None:
    for _, waiter in waiters:
        if waiter.done():
            continue  # whoever waited was cancelled
        if failure is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(_not_audited(failure))


def _not_audited(failure: str) -> NotAudited:
    return NotAudited(
        f"nothing was done: the audit trail cannot be written ({failure}), and access.audit_full "
        "is stop. Free some space, or set it to go_on"
    )
