"""Room: wire. The durable sessions of a cluster, listed for those who look after it."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.limits import SESSION_NAME_BYTES_MAX, SESSIONS_PER_PAGE_MAX
from moorline.wire.bounds import Name, Words
from moorline.wire.message import Answer, Call

SessionAfter = Annotated[str, Meta(max_length=SESSION_NAME_BYTES_MAX)]


class SessionFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A durable session as the catalog has it."""

    name: SessionAfter
    owner: Words
    node: Name
    """The home of the node that it was opened at last."""
    filters: int
    expiry_s: int
    silent_ms: int
    """Since a node last said that it is in use; then it expires behind `expiry_s`."""
    created_us: int


class ListSessions(Call, frozen=True, gc=False, tag=638):
    """A page of all sessions of the cluster, by name, behind that one."""

    after: SessionAfter = ""


class SessionsListed(Answer, frozen=True, gc=False, tag=639):
    sessions: Annotated[tuple[SessionFacts, ...], Meta(max_length=SESSIONS_PER_PAGE_MAX)]
    is_last: bool


COMMANDS = ListSessions
EVENTS = SessionsListed
