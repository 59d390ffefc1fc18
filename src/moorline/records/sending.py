"""Room: records. What a feed says, put into messages: each is written once for all who read in the same form.

A `sync_start` waits for what it is the start of: a sync that fails before its first row is never heard of.
A row that is larger than its readers take ends the subscriptions that it is for: without it their digest
would be another set's, and cut by it they would come back for it for ever.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moorline.core.records.cursor import TableCursor, brief_of, facts_hash
from moorline.core.records.feed_events import How
from moorline.core.records.filter import Filter
from moorline.core.records.row_hash import NAME
from moorline.core.records.table import After, Key, Table
from moorline.core.sets.digest import Digest
from moorline.errors import RowTooLarge
from moorline.limits import RECORD_KEY_CHARACTERS_SHOWN, RECORD_RESUME_BYTES_MAX
from moorline.records.form import Form, packets
from moorline.records.receiver import Receiver, Resumes
from moorline.wire.records import (
    ColumnFacts,
    Deletion,
    RecordMessage,
    RecordsUnchanged,
    SyncEnd,
    SyncStart,
)

Rows = Sequence[tuple[Key, After]]


class Sending:
    def __init__(
        self,
        table: Table,
        sign: Callable[[TableCursor], str],
        refuse: Callable[[Receiver, RowTooLarge], None],
    ) -> None:
        self.table = table
        self._sign = sign
        self._refuse = refuse

    def rows(
        self,
        receivers: Sequence[Receiver],
        filter_: Filter,
        deletions: Sequence[Key],
        records: Rows,
    ) -> None:
        """To receivers of one audience."""
        if not receivers or not (deletions or records):
            return
        made: dict[Form, list[Any] | RowTooLarge] = {}
        self.begin(receivers)
        for receiver in receivers:
            form = receiver.hearer.form
            found = made.get(form)
            if found is None:
                found = made[form] = self._packets(form, filter_, deletions, records)
            if isinstance(found, RowTooLarge):
                self._refuse(receiver, found)
                continue
            # It holds something else from now on than it said when it came.
            receiver.digest = None
            for packet in found:
                receiver.hearer.write(packet)

    def begin(self, receivers: Iterable[Receiver]) -> None:
        """Tells those of a sync that have not heard of it."""
        made: dict[tuple[Form, int, How], Any] = {}
        for receiver in receivers:
            how = receiver.pending
            if how is None:
                continue
            receiver.pending, receiver.told = None, how
            receiver.is_asking = how is How.DIGEST
            form = receiver.hearer.form
            known = form, receiver.sync, how
            if known not in made:
                made[known] = form.packet([form.message(self._start(receiver, how))])
            receiver.hearer.write(made[known])

    def end(self, receivers: Sequence[Receiver], cursor: TableCursor) -> None:
        if not receivers:
            return
        signed, digest = self._sign(cursor), bytes(cursor.digest)
        receivers = self._changed(receivers, cursor.digest, signed)
        self.begin(receivers)
        made: dict[tuple[Form, int], Any] = {}
        for receiver in receivers:
            form = receiver.hearer.form
            known = form, receiver.sync
            if known not in made:
                message = SyncEnd(receiver.sync, self.table.name, signed, digest)
                made[known] = form.packet([form.message(message)])
            receiver.hearer.write(made[known])
            receiver.is_asking = False
            receiver.hearer.ended(receiver)

    def _changed(
        self, receivers: Sequence[Receiver], digest: Digest, signed: str
    ) -> Sequence[Receiver]:
        """Tells those that resume and miss nothing so; the others."""
        others = []
        for receiver in receivers:
            resumes, receiver.resumes = receiver.resumes, Resumes.NOT
            # Whatever was told since has taken the start, or the digest, away.
            is_same = receiver.pending is How.REPLAY and receiver.digest == digest
            # Between its subscribe and this moment the columns may have become others.
            is_same = is_same and receiver.facts == facts_of(self.table, receiver.filter)
            brief = brief_of(signed) if resumes is Resumes.WITHOUT_CURSOR else b""
            if resumes is Resumes.NOT or not is_same or len(brief) > RECORD_RESUME_BYTES_MAX:
                others.append(receiver)
                continue
            receiver.pending, receiver.told, receiver.is_asking = None, How.REPLAY, False
            receiver.hearer.write(RecordsUnchanged(receiver.sync, brief))
            receiver.hearer.ended(receiver)
        return others

    def cursor(
        self, snapshot: Any, filter_: Filter, permit_hash: bytes, digest: Digest
    ) -> TableCursor:
        table = self.table
        facts = own_facts_of(table, filter_)
        return TableCursor(
            table.name, table.epoch, snapshot, filter_.hash, permit_hash, digest, facts
        )

    def _packets(
        self, form: Form, filter_: Filter, deletions: Sequence[Key], records: Rows
    ) -> list[Any] | RowTooLarge:
        try:
            return list(packets(form, self._parts(form, filter_, deletions, records)))
        except RowTooLarge as error:
            return error

    def _parts(
        self, form: Form, filter_: Filter, deletions: Sequence[Key], records: Rows
    ) -> Iterable[bytes]:
        name = self.table.name
        for key in deletions:
            yield form.message(Deletion(name, list(key)))
        for key, after in records:
            record = form.record(name, after, filter_.columns)
            if record is None:
                raise too_large(key, form)
            yield record

    def _start(self, receiver: Receiver, how: How) -> RecordMessage:
        return start_of(self.table, receiver.filter, receiver.sync, how)


def start_of(table: Table, filter_: Filter, sync: int, how: How) -> SyncStart:
    if how is How.LIVE:
        # Nothing of the table is another one: its facts were told with the sync before.
        return SyncStart(sync, table.name, how.value)
    return SyncStart(
        sync,
        table.name,
        how.value,
        key=list(table.key),
        columns=[ColumnFacts(*one) for one in _columns(table, filter_)],
        salt=f"{table.salt:016x}",
        hash=NAME,
    )


def too_large(key: Key, form: Form) -> RowTooLarge:
    shown = ", ".join(key)
    if len(shown) > RECORD_KEY_CHARACTERS_SHOWN:
        shown = f"{shown[:RECORD_KEY_CHARACTERS_SHOWN]}…"
    return RowTooLarge(
        f"the row with the key {shown} has more than the {form.row_bytes_max} bytes that a row may have "
        f"here: name columns without the long one, or leave the row out by the filter"
    )


def facts_of(table: Table, filter_: Filter) -> bytes:
    """The hash of what a client of this filter was told of the table."""
    return facts_hash(table.key, _columns(table, filter_), table.salt)


def own_facts_of(table: Table, filter_: Filter) -> bytes:
    """With what a node says to itself: the epoch, and whether rows may have other values since, under the
    numbers that they have. A client that was away then holds those of before, and no digest would tell."""
    columns = _columns(table, filter_)
    names = {name for name, _ in columns}
    written = ",".join(f"{name} {by}" for name, by in table.written if name in names)
    said = f"{table.epoch}\0{written}\0{table.attached}"
    return facts_hash(table.key, columns, table.salt, said)


def _columns(table: Table, filter_: Filter) -> list[tuple[str, str]]:
    chosen = filter_.columns
    return [
        (column.name, column.type)
        for column in table.columns
        if chosen is None or column.name in chosen
    ]
