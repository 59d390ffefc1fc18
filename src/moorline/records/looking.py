"""Room: records. What operators see of tables: which are registered, and who is subscribed at this node.

The databases are asked as often as somebody looks; subscribers are in memory. Nothing is opened for a look:
a table without subscribers stays as it is.
"""

from collections.abc import Generator, Iterable

from moorline.access.guard import Declarations, heavy, needs
from moorline.core.access.right import LIST
from moorline.core.records.filter import Condition, Filter
from moorline.core.records.permit import ROOT, level_of_owner
from moorline.core.records.subscription import Standing
from moorline.errors import DatabaseUnreachable
from moorline.limits import (
    RECORD_FILTER_CHARACTERS_SHOWN,
    RECORD_SUBSCRIBERS_PER_PAGE,
    RECORD_TABLES_PER_PAGE,
)
from moorline.net.session import Session
from moorline.net.slices import in_slices
from moorline.net.turns import Turns
from moorline.records.registration import Registration
from moorline.records.subscribing import Tables
from moorline.records.table_host import TableHost
from moorline.wire.message import Answer
from moorline.wire.record_tables import (
    ListRecordTables,
    RecordSubscriberFacts,
    RecordTableFacts,
    RecordTablesListed,
)


class RecordTables:
    """Answers `ListRecordTables`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._turns = Turns()

    def declared(self) -> Declarations:
        return {
            ListRecordTables: heavy(needs(LIST, paths_of, self._turns.spawned(self.list_tables))),
        }

    def close(self) -> None:
        self._turns.close()

    async def list_tables(self, session: Session, call: ListRecordTables) -> Answer:
        found: dict[str, RecordTableFacts] = {}
        for database in self._tables.databases:
            try:
                rows = await database.registrations(call.table or None)
            except DatabaseUnreachable as error:
                self._add_hosted(found, call, str(error))
                continue
            for row in rows:
                # A name that two databases have is that of the first, as for subscribers.
                found.setdefault(row.name, self._facts(row))
        if call.table:
            one = [found[call.table]] if call.table in found else []
            host = self._tables.hosts.get(call.table)
            rows_of = _subscribers(host, call.after_subscriber)
            some, is_last = await in_slices(rows_of, session.rights.principal)
            return RecordTablesListed(call.call, one, some, is_last)
        names = sorted(name for name in found if name > call.after)
        page = [found[name] for name in names[:RECORD_TABLES_PER_PAGE]]
        return RecordTablesListed(call.call, page, [], len(names) <= len(page))

    def _facts(self, row: Registration) -> RecordTableFacts:
        host = self._tables.hosts.get(row.name)
        return RecordTableFacts(
            row.name,
            "" if row.is_dropped else row.table,
            row.capture,
            ", ".join(row.key),
            row.owner or row.owner_from or "",
            *_served(host),
        )

    def _add_hosted(
        self, found: dict[str, RecordTableFacts], call: ListRecordTables, why: str
    ) -> None:
        """Of a database that does not answer those tables are known that somebody is subscribed to."""
        for name, host in self._tables.hosts.items():
            if call.table in ("", name):
                key = ", ".join(host.table.key)
                subscribers, scans, away = _served(host)
                found.setdefault(
                    name, RecordTableFacts(name, "", "", key, "", subscribers, scans, away or why)
                )


def _served(host: TableHost | None) -> tuple[int, int, str]:
    return (len(host.receivers), host.scans_running, host.away) if host is not None else (0, 0, "")


def paths_of(call: ListRecordTables) -> Iterable[str]:
    return (f"{ROOT}/{level_of_owner(call.table)}" if call.table else ROOT,)


def _subscribers(
    host: TableHost | None, after: int
) -> Generator[None, None, tuple[list[RecordSubscriberFacts], bool]]:
    rows: list[RecordSubscriberFacts] = []
    if host is None:
        return rows, True
    # A copy: others come and go between two slices.
    for number in sorted(one for one in list(host.receivers) if one > after):
        yield
        receiver, known = host.receivers.get(number), host.feed.subscriptions.get(number)
        if receiver is None or known is None:
            continue
        if len(rows) == RECORD_SUBSCRIBERS_PER_PAGE:
            return rows, False
        is_live = known.standing is Standing.LIVE
        rows.append(
            RecordSubscriberFacts(
                number,
                known.principal,
                receiver.hearer.form.name,
                known.standing.value,
                shown(receiver.filter)[:RECORD_FILTER_CHARACTERS_SHOWN],
                len(receiver.filter.columns or ()),
                0 if is_live else max(0, host.feed.step_number - known.at),
            )
        )
    return rows, True


def shown(wanted: Filter) -> str:
    """A filter as people write it; empty for all rows."""
    return " and ".join(_term(term.condition()) for term in wanted.terms)


def _term(condition: Condition) -> str:
    if condition.kind == "range":
        return " and ".join(f"{condition.column} {sign} {text}" for sign, text in condition.bounds)
    texts = [*condition.texts, *(["null"] if condition.or_null or condition.kind == "null" else [])]
    if len(texts) == 1:
        return f"{condition.column} = {texts[0]}"
    return f"{condition.column} in ({', '.join(texts)})"
