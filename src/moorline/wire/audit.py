"""Room: wire. Reading the audit trail of a node, page by page."""

from typing import Annotated

from msgspec import Meta

from moorline.limits import (
    AUDIT_LINE_BYTES_MAX,
    AUDIT_PATH_LENGTH_MAX,
    AUDIT_PRINCIPAL_LENGTH_MAX,
    AUDIT_ROWS_PER_PAGE_MAX,
    CODE_LENGTH_MAX,
)
from moorline.wire.bounds import Code
from moorline.wire.message import Answer, Call

PrincipalText = Annotated[str, Meta(max_length=AUDIT_PRINCIPAL_LENGTH_MAX)]
PathText = Annotated[str, Meta(max_length=AUDIT_PATH_LENGTH_MAX)]
TimeText = Annotated[str, Meta(max_length=CODE_LENGTH_MAX)]
TrailPosition = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
AuditLines = Annotated[
    list[Annotated[bytes, Meta(max_length=AUDIT_LINE_BYTES_MAX)]],
    Meta(max_length=AUDIT_ROWS_PER_PAGE_MAX),
]


class ReadAudit(Call, frozen=True, gc=False, tag=240):
    """Asks for lines of the trail from a place on; `file` 0 is the first one that may have any.

    What is empty is any. `since` is a time as the lines have it, or the beginning of one.
    """

    file: TrailPosition = 0
    offset: TrailPosition = 0
    since: TimeText = ""
    principal: PrincipalText = ""
    verdict: Code = ""
    kind: Code = ""
    path: PathText = ""


class AuditRead(Answer, frozen=True, gc=False, tag=241):
    """JSON objects as they are in the files. One call looks at a bounded part of them and may find none:
    ask again from `file` and `offset`, until `is_end`; and later from there for what came since."""

    lines: AuditLines
    file: int
    offset: int
    is_end: bool
    unreadable: int
    """Lines on the way that a crash tore, or that were changed by another hand."""


COMMANDS = ReadAudit
EVENTS = AuditRead
