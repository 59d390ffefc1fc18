"""Room: records. What changed in a table between two snapshots: the interface, whatever finds it out.

    async with open_capture(database, "experiments") as capture: ...        records/opening.py
    since = await capture.position()
    async with capture.step(since) as step:
        if step.resync: ...                                 start again at step.until, by scans
        async for changes in step.changes(): ...            net, one for each key, deletions first
        since = step.until

    async with capture.step(since, is_exported=True) as step:
        snapshot_id = await step.export()                   scans elsewhere see exactly step.until
        async for keys in capture.scan_keys((), snapshot_id): ...

`log_capture.py` reads the table and its log, `notify_capture.py` what Postgres sent. Both are held to the
same tests.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol

from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import Change, Key, Table
from moorline.records.condition import Condition

Why = Literal["truncated", "log", "epoch", "schema", "rewritten", "notify"]
"""TRUNCATE; the log does not reach back, or has passed its bound; another cluster, timeline or
registration; other columns or partitions; rows in other files; lines that were not heard."""


class Resync(NamedTuple):
    """What changed since is not known: subscriptions are synced by scans, and steps go on from `until`."""

    why: Why
    text: str


class ScannedRow(NamedTuple):
    key: Key
    seq: int
    row: bytes
    """A JSON object of the columns that were asked for."""
    whole_bytes: int = 0
    """As of `After`."""


class Step(Protocol):
    """From `since` to `until`. Its changes are read while it is open."""

    since: Snapshot
    until: Snapshot
    table: Table
    """As it is at `until`."""
    resync: Resync | None
    is_unchanged: bool
    """Nothing is behind `since`; `changes` is empty."""

    async def export(self) -> str:
        """The id by which other transactions see `until`, for as long as the step is open. Of a step that
        was asked for with `is_exported`, or has changes."""

    def changes(self) -> AsyncIterator[list[Change]]:
        """Once. Parts are bounded by rows and bytes."""


class Capture(Protocol):
    @property
    def table(self) -> Table:
        """As of the last step."""

    @property
    def number(self) -> int:
        """Of its registration: that of its sequence."""

    @property
    def shape(self) -> str:
        """Columns and partitions as of then, as one text that differs when they do."""

    async def position(self) -> Snapshot:
        """That of now, to begin at."""

    def step(
        self, since: Snapshot, *, is_exported: bool = False
    ) -> AbstractAsyncContextManager[Step]: ...

    def changes_since(
        self, since: Snapshot, condition: Condition, snapshot_id: str
    ) -> AsyncIterator[list[Change]]:
        """Net changes of the rows that are meant: `before` and `after` are there only where the row was,
        or is, one of them. Whether the log reaches back is asked with `replays` first."""

    async def replays(self, epoch: str, since: Snapshot) -> Resync | None:
        """None if all that is behind the snapshot can be told; else why not."""

    def scan_keys(
        self, condition: Condition, snapshot_id: str, *, since: Snapshot | None = None
    ) -> AsyncIterator[list[tuple[Key, int]]]:
        """Key and seq of all rows that are meant, in no order; or of those that changed behind `since`."""

    def scan_rows(
        self,
        condition: Condition,
        snapshot_id: str,
        *,
        keys: Sequence[Key] | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[list[ScannedRow]]:
        """All rows that are meant, or those of them with these keys; all columns, or these."""
