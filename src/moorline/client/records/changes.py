"""Room: client/records. What happens to a copy, as a program hears it; and the bound for one that is slow.

Up to `RECORD_CHANGES_MAX` changes wait, each of them. Beyond that they *collapse*: of each key the latest
change waits, and of each kind of event the latest. So what waits is bounded by the rows of the copy, and by
`RECORD_CHANGES_MAX` keys that are gone; beyond these all of it becomes one `overflow`: look at the rows anew.
"""

import asyncio
from collections.abc import Hashable
from enum import Enum

import msgspec

from moorline.client.records.rows import PublicKey, Row
from moorline.errors import MoorlineError
from moorline.limits import RECORD_CHANGES_MAX


class ChangeKind(Enum):
    RECORD = "record"
    """A row is there, or is another one: `key`, `row`, `seq`."""
    DELETION = "deletion"
    """A row is not there any more, for us: `key`, and `row` as it was."""
    SYNCED = "synced"
    """The copy is the table, proven by digest; `how` says by which way. Not told for live changes."""
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    DRIFTED = "drifted"
    """The digest was another one: the copy compares itself with the node."""
    HEALED = "healed"
    """And is the table again."""
    REFUSED = "refused"
    """The node does not serve it now; the copy goes on asking. `error` says why."""
    CACHE_LOST = "cache_lost"
    """The cache cannot be written; `why` names the file. The copy goes on without it."""
    OVERFLOW = "overflow"
    """More has changed than waits for a slow program: look at the rows anew."""


class RecordChange(msgspec.Struct, frozen=True):
    """One change of a row, or an event of the copy."""

    kind: ChangeKind
    key: PublicKey = None
    row: Row = {}
    """Of an event: nothing."""
    seq: int = 0
    how: str = ""
    why: str = ""
    error: MoorlineError | None = None

    @property
    def is_of_row(self) -> bool:
        return self.kind in (ChangeKind.RECORD, ChangeKind.DELETION)


class Changes:
    """Everything since it was made, for one reader: `async for change in changes`. Ends with the table."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, RecordChange] = {}
        """In order. By numbers; collapsed, by keys and kinds."""
        self._number = 0
        self._is_collapsed = False
        self._gone = 0
        """Deletions among what has collapsed."""
        self._news = asyncio.Event()
        self._error: BaseException | None = None
        self._is_over = False

    def __aiter__(self) -> "Changes":
        return self

    async def __anext__(self) -> RecordChange:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._take()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Nothing more is kept for it."""
        return self._is_over

    def close(self) -> None:
        """Nothing more is kept for it; what waits can still be read."""
        self._is_over = True
        self._news.set()

    # --- from the table ---------------------------------------------------------------------------

    def put(self, change: RecordChange) -> None:
        if self._is_over:
            return
        if not self._is_collapsed and len(self._waiting) >= RECORD_CHANGES_MAX:
            self._collapse()
        if self._is_collapsed:
            self._put_latest(change)
        else:
            self._number += 1
            self._waiting[self._number] = change
        self._news.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._news.set()

    def _take(self) -> RecordChange:
        first = next(iter(self._waiting))
        change = self._waiting.pop(first)
        self._gone -= self._is_collapsed and change.kind is ChangeKind.DELETION
        if not self._waiting:
            self._is_collapsed, self._gone = False, 0
        return change

    def _collapse(self) -> None:
        self._is_collapsed = True
        waiting, self._waiting = list(self._waiting.values()), {}
        for change in waiting:
            self._put_latest(change)

    def _put_latest(self, change: RecordChange) -> None:
        place: Hashable = (change.is_of_row, change.key if change.is_of_row else change.kind)
        before = self._waiting.pop(place, None)
        if before is not None and before.kind is ChangeKind.DELETION:
            self._gone -= 1
        self._waiting[place] = change
        self._gone += change.kind is ChangeKind.DELETION
        if self._gone > RECORD_CHANGES_MAX:
            events = [one for one in self._waiting.values() if not one.is_of_row]
            self._waiting = {(False, one.kind): one for one in events}
            overflow = RecordChange(ChangeKind.OVERFLOW, why="more has changed than waits")
            self._waiting[False, ChangeKind.OVERFLOW] = overflow
            self._gone = 0
