"""Room: records. A subscription whose table is open: judged and registered in one go.

    refused = joining.join(session)            rights are read, and it is registered; or why not

What takes time was done before (subscribing.py): reading the cursor, the known ids and the filter.
"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from moorline.access.trail import Acting
from moorline.core.records.cursor import FACTS_BYTES, HEAD_BYTES, Asked, TableCursor, misfit
from moorline.core.records.feed_events import How, Wanted
from moorline.core.records.filter import Filter
from moorline.core.records.known_ids import KnownIds
from moorline.core.records.permit import Permit
from moorline.core.records.snapshot import Snapshot
from moorline.core.records.value import WHOLE_BITS
from moorline.core.sets.digest import Digest
from moorline.errors import BadFilter, LimitReached, RightsUnknown
from moorline.records.permits import Permits
from moorline.records.receiver import Receiver, Resumes
from moorline.records.sending import facts_of, own_facts_of
from moorline.records.signing import Signing
from moorline.records.table_host import TableHost
from moorline.wire.records import Refused, TableSubscription

if TYPE_CHECKING:
    from moorline.records.session import RecordSession

NO_SUCH_TABLE = "no such table"
RETURN_MS = 1_000

TellDenied = Callable[[Acting, str], None]

_numbers = itertools.count(1)


class Judged(NamedTuple):
    host: TableHost
    filter: Filter
    permit: Permit
    version: int
    """Of the rights that the permit was read from, or of some before."""


class Joining:
    """A subscription whose table is open."""

    def __init__(
        self,
        host: TableHost,
        permits: Permits,
        sync: int,
        wanted: TableSubscription,
        cursor: TableCursor | None,
        place: bytes,
        signing: Signing,
        known: KnownIds | BadFilter | None,
        filter_: Filter | BadFilter,
        denied: TellDenied,
    ) -> None:
        self._denied = denied
        self._parsed = known
        """The ids that it says it knows, or what is wrong with them."""
        self._filter = filter_
        """What it asks for of the table as it is now, or what is wrong with that."""
        self._place = place
        """Of who resumes: a brief cursor, or the hash of what it was told of the table."""
        self._signing = signing
        self._host = host
        self._permits = permits
        self._sync = sync
        self._wanted = wanted
        self._cursor = cursor

    def judge(self, session: "RecordSession") -> "Judged | Refused":
        """What it may see and asked for, of the table as it is now."""
        host, wanted, name = self._host, self._wanted, self._wanted.table
        if host.is_over:
            return Refused(self._sync, name, "BUSY", "the table is being opened", RETURN_MS)
        # The number before the permit: a change in between is seen by the feed.
        version = self._permits.version
        try:
            permit = self._permits.of(session.rights, host.table)
        except (LimitReached, RightsUnknown) as error:
            return Refused(self._sync, name, "BUSY", str(error), RETURN_MS)
        if permit.is_nothing:
            self._denied(session.acting, name)
            return Refused(self._sync, name, "NO_SUCH_TABLE", NO_SUCH_TABLE)
        there = {column.name for column in host.table.columns}
        for column in (*(wanted.columns or ()), *wanted.where):
            if column not in there:
                return Refused(self._sync, name, "NO_SUCH_COLUMN", f"no column {column[:64]!r}")
        filter_ = self._filter
        if isinstance(filter_, BadFilter):
            return Refused(self._sync, name, "BAD_FILTER", str(filter_))
        return Judged(host, filter_, permit, version)

    def join(self, session: "RecordSession") -> Refused | None:
        wanted, name = self._wanted, self._wanted.table
        judged = self.judge(session)
        if isinstance(judged, Refused):
            return judged
        host, filter_, permit, version = judged
        try:
            receiver = Receiver(next(_numbers), session, self._sync, name, filter_)
            receiver.digest = None if wanted.digest is None else Digest.from_bytes(wanted.digest)
            receiver.known = self._known()
            receiver.can_compare = receiver.known is None and session.can_compare
        except BadFilter as error:
            return Refused(self._sync, name, "BAD_FILTER", str(error))
        except LimitReached as error:
            return Refused(self._sync, name, "BUSY", str(error), RETURN_MS)
        cursor = self._cursor
        is_as_told = True
        if self._place:
            cursor, is_as_told = self._resumed(receiver, permit)
        elif cursor is not None:
            # It holds rows of other columns, which neither a replay nor a digest would tell anything of.
            is_as_told = cursor.facts == own_facts_of(host.table, filter_)
            cursor = cursor if is_as_told else None
        if receiver.known is not None and cursor is not None:
            receiver.known_at = self._known_at(cursor, filter_)
        if cursor is not None and misfit(cursor, host.table, filter_.hash, permit.hash) is not None:
            cursor = None
        if cursor is not None and receiver.digest not in (None, cursor.digest):
            # It holds something else than it was told there: what it has too much no replay would take away.
            cursor = None
        otherwise = How.FULL
        if receiver.known is not None:
            otherwise = How.IDS
        elif not is_as_told:
            # In another epoch numbers are given anew: a digest could find one equal that is another row.
            otherwise = How.FULL
        elif receiver.can_compare and receiver.digest is not None and receiver.digest.count:
            otherwise = How.DIGEST
        session.receivers[name] = (host, receiver)
        host.subscribe(receiver, Wanted(filter_, permit, version, cursor, otherwise))
        return None

    def _resumed(self, receiver: Receiver, permit: Permit) -> tuple[TableCursor | None, bool]:
        """The cursor that it means, if it is that; and whether the table is what it was told.

        Where epoch or columns are others, nothing that it holds is of use.
        """
        table, filter_, digest = self._host.table, receiver.filter, receiver.digest
        assert digest is not None, "who resumes says its digest"
        receiver.facts = facts_of(table, filter_)
        if len(self._place) == FACTS_BYTES:
            is_as_told = self._place == receiver.facts
            receiver.resumes = Resumes.WITHOUT_CURSOR if is_as_told else Resumes.NOT
            return None, is_as_told
        asked = Asked(table.name, table.epoch, filter_.hash, permit.hash, digest)
        found = self._signing.open_brief(self._place, asked)
        told = self._place[HEAD_BYTES : HEAD_BYTES + FACTS_BYTES]
        is_as_told = told == own_facts_of(table, filter_)
        if not isinstance(found, TableCursor):
            return None, is_as_told
        receiver.resumes = Resumes.WITH_CURSOR if is_as_told else Resumes.NOT
        return found if is_as_told else None, is_as_told

    def _known_at(self, cursor: TableCursor, filter_: Filter) -> Snapshot | None:
        """Where its ids were told of, if they were told as they would be now. Its permit may be another."""
        table = self._host.table
        facts = own_facts_of(table, filter_)
        is_same = (cursor.table, cursor.epoch, cursor.filter_hash, cursor.facts) == (
            table.name,
            table.epoch,
            filter_.hash,
            facts,
        )
        return cursor.snapshot if is_same else None

    def _known(self) -> KnownIds | None:
        if self._wanted.ids is None:
            return None
        table = self._host.table
        types = {column.name: column.type for column in table.columns}
        if len(table.key) != 1 or types.get(table.key[0]) not in WHOLE_BITS:
            raise BadFilter("known ids are of a key that is one whole number: say a digest instead")
        if isinstance(self._parsed, BadFilter):
            raise self._parsed
        return self._parsed
