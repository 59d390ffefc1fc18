"""Room: records. A table in pages, for clients without WebSockets: what is too much for one answer.

    body = await answer_page(tables, session, asked, cursor)

A page is the table up to one key, at one snapshot. The rows that its reader has come there by what changed
since its cursor; then the next rows follow, in the order of keys. Its cursor says up to which key, and its
digest is that of the rows up to there: each page is proven, any node may bring the next one, and nothing is
kept between two of them. Where the log does not lead on from a cursor it is the first page again.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from moorline.core.records.cursor import TableCursor, Why, misfit
from moorline.core.records.feed_events import How
from moorline.core.records.row_hash import RowDigest
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.table import After, Change, Key, Table
from moorline.core.sets.digest import Digest
from moorline.errors import LimitReached
from moorline.limits import (
    RECORD_CURSOR_OPEN_MAX,
    RECORDS_CHUNK_BYTES_MAX,
    RECORDS_CHUNK_ROWS_MAX,
    RECORDS_PAGE_BYTES,
    RECORDS_PAGE_KEY_CHARACTERS_MAX,
    RECORDS_PAGE_ROWS_MAX,
    RECORDS_POLL_BYTES_MAX,
)
from moorline.records.capture import ScannedRow
from moorline.records.condition import Condition
from moorline.records.copying import copied, fields
from moorline.records.form import POLL
from moorline.records.joining import RETURN_MS, Judged
from moorline.records.log_capture import LogCapture, read_changes
from moorline.records.scope import condition_of
from moorline.records.sending import own_facts_of, start_of, too_large
from moorline.records.subscribing import Tables
from moorline.records.table_reader import scanned_row
from moorline.wire.records import Deletion, Refused, Subscribe, SyncEnd, TableSubscription

if TYPE_CHECKING:
    from moorline.records.session import RecordSession


class Page:
    """What is said in it, and up to where it goes."""

    def __init__(self, table: Table, judged: Judged, sync: int, cursor: TableCursor | None) -> None:
        how = How.FULL if cursor is None else How.REPLAY
        self.sync = sync
        self.parts = [POLL.message(start_of(table, judged.filter, sync, how))]
        self.size = 0
        self.upto: Key = () if cursor is None else cursor.upto
        """The last key of which it tells."""
        self.is_last = False
        self.snapshot: Snapshot | None = None
        self._table = table
        self._judged = judged
        self._digest = RowDigest(table.salt, None if cursor is None else cursor.digest)

    def digest(self) -> Digest:
        return self._digest.digest()

    def change(self, changes: Sequence[Change]) -> None:
        """Of rows that its reader has, had, or would have by now."""
        for change in changes:
            is_in = change.after is not None
            self._digest.roll(change, was_in=change.before is not None, is_in=is_in)
            if change.after is None:
                self._say(POLL.message(Deletion(self._table.name, list(change.key))))
            else:
                self._say(self._record(change.key, change.after))

    def add(self, row: ScannedRow) -> None:
        """The next one."""
        self._say(self._record(row.key, After(row.seq, (), row.row, row.whole_bytes)))
        self._digest.enter(row.key, row.seq)
        self.upto = row.key

    def cursor(self) -> TableCursor:
        table, filter_ = self._table, self._judged.filter
        return TableCursor(
            table.name,
            table.epoch,
            self.snapshot,
            filter_.hash,
            self._judged.permit.hash,
            self.digest(),
            own_facts_of(table, filter_),
            () if self.is_last else self.upto,
        )

    def answer(self, signed: str) -> bytes:
        end = SyncEnd(
            self.sync, self._table.name, signed, bytes(self.digest()), more=not self.is_last
        )
        return b"[" + b",".join((*self.parts, POLL.message(end))) + b"]"

    def _record(self, key: Key, after: After) -> bytes:
        found = POLL.record(self._table.name, after, self._judged.filter.columns)
        if found is None:
            raise too_large(key, POLL)
        return found

    def _say(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)


async def answer_page(
    tables: Tables, session: "RecordSession", asked: Subscribe, cursor: TableCursor | None
) -> bytes | Refused | None:
    """The page behind the cursor of one, or the first; None if rights have changed meanwhile.

    RowTooLarge names a row that no answer can have, LimitReached says why there are no pages of this table.
    """
    (wanted,) = asked.tables
    name, rights = wanted.table, session.rights
    joining = await tables.joining(session, asked.sync, wanted)
    judged = joining if isinstance(joining, Refused) else joining.judge(session)
    if isinstance(judged, Refused):
        return judged
    slots = judged.host.slots
    if slots.scans_of.total() >= slots.scans_max:
        return Refused(asked.sync, name, "BUSY", "as many scans run as may", RETURN_MS)
    slot = slots.take(rights.principal, is_offer=False)
    try:
        async with tables.capture(name) as capture:
            table = capture.table
            if not isinstance(capture, LogCapture):
                raise LimitReached("the capture of this table keeps no log: it needs a WebSocket")
            if (table.columns, table.scopes) != (
                judged.host.table.columns,
                judged.host.table.scopes,
            ):
                return Refused(asked.sync, name, "BUSY", "its columns have changed", RETURN_MS)
            if cursor is not None and not _leads_on(cursor, wanted, table, judged):
                cursor = None
            page = await read_page(capture, judged, asked.sync, cursor)
    finally:
        slot.end()
    has_changed = tables.permits.version != judged.version
    if has_changed and tables.permits.of(rights, table).hash != judged.permit.hash:
        return None
    return page.answer(tables.signing.sign(page.cursor()))


def _leads_on(cursor: TableCursor, wanted: TableSubscription, table: Table, judged: Judged) -> bool:
    """Whether it is of a page of this subscription, and its reader has what it was told there."""
    why = misfit(cursor, table, judged.filter.hash, judged.permit.hash)
    is_as_told = cursor.facts == own_facts_of(table, judged.filter)
    return why is Why.PAGE and is_as_told and wanted.digest in (None, bytes(cursor.digest))


async def read_page(
    capture: LogCapture, judged: Judged, sync: int, cursor: TableCursor | None
) -> Page:
    if cursor is not None:
        page = await _read(capture, judged, sync, cursor)
        if page is not None:
            return page
    page = await _read(capture, judged, sync, None)
    assert page is not None, "the first one depends on nothing"
    return page


async def _read(
    capture: LogCapture, judged: Judged, sync: int, cursor: TableCursor | None
) -> Page | None:
    """None: what changed is not known, or as much as would be all of it again."""
    async with capture.database.reading() as connection:
        since = None if cursor is None else cursor.snapshot
        look, resync = await capture.look(connection, since)
        page = Page(capture.table, judged, sync, cursor)
        page.snapshot = look.snapshot
        condition = condition_of(capture.table, judged.filter, judged.permit)
        if cursor is not None:
            if since is None or resync is not None:
                return None
            if not await _changed(capture, connection, page, since, condition):
                return None
        await _added(capture, connection, page, condition, judged.filter.columns)
    if not page.is_last:
        _check_resumable(page)
    return page


async def _changed(
    capture: LogCapture, connection: Any, page: Page, since: Snapshot, condition: Condition
) -> bool:
    sql = capture.registered.sql
    async with aclosing(read_changes(connection, sql, since, condition, page.upto)) as changed:
        async for changes in changed:
            page.change(changes)
            if page.size > RECORDS_POLL_BYTES_MAX // 2:
                return False
    return True


async def _added(
    capture: LogCapture,
    connection: Any,
    page: Page,
    condition: Condition,
    columns: Sequence[str] | None,
) -> None:
    width, count = len(capture.table.key), 0
    query = capture.registered.sql.page(condition, columns, page.upto, RECORDS_PAGE_ROWS_MAX)
    rows = copied(connection, query, RECORDS_CHUNK_ROWS_MAX, RECORDS_CHUNK_BYTES_MAX)
    async with aclosing(rows) as parts:
        async for lines in parts:
            for line in lines:
                if page.size >= RECORDS_PAGE_BYTES:
                    return
                page.add(scanned_row(fields(line), width))
                count += 1
    page.is_last = count < RECORDS_PAGE_ROWS_MAX


def _check_resumable(page: Page) -> None:
    assert page.snapshot is not None
    if len(page.snapshot.open) > RECORD_CURSOR_OPEN_MAX:
        raise LimitReached("more transactions are open in the database than a cursor can hold")
    if sum(map(len, page.upto)) > RECORDS_PAGE_KEY_CHARACTERS_MAX:
        raise LimitReached(
            f"a key has more than the {RECORDS_PAGE_KEY_CHARACTERS_MAX} characters that a page may "
            "end with: it needs a WebSocket"
        )
