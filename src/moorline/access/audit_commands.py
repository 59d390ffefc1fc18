"""Room: access. The audit trail, for whoever may read it over the wire: `ReadAudit`, page by page."""

from moorline.access.audit import Audit
from moorline.access.guard import Declarations, heavy, needs
from moorline.core.access.right import LIST
from moorline.journal.audit import AuditCursor, Wanted
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.wire.audit import AuditRead, ReadAudit

AUDIT = "/admin/audit"


class AuditCommands:
    """Every call reads a bounded part of the files, in a thread; those of one session come in turn."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._turns = Turns()

    def declared(self) -> Declarations:
        return {ReadAudit: heavy(needs(LIST, lambda _: (AUDIT,), self._turns.later(self._read)))}

    def close(self) -> None:
        self._turns.close()

    async def _read(self, session: Session, call: ReadAudit) -> AuditRead:  # noqa: ARG002
        wanted = Wanted(call.since, call.principal, call.verdict, call.kind, call.path)
        place = AuditCursor(call.file, call.offset)
        if not call.file:
            place = await self._audit.first_place(wanted)
        page = await self._audit.read(place, wanted)
        return AuditRead(
            call.call, page.lines, page.next.file, page.next.offset, page.is_end, page.unreadable
        )
