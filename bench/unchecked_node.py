"""A node for `bench/rights.py`: `moor`, and some users of it are asked for nothing.

Calls of those whose names begin with UNCHECKED go to the handlers themselves, with no guard before them and
no account to take from: what a call cost before there were rights. All else is the same, in one process.
"""

from collections.abc import Collection

from moorline.access.guard import Declarations
from moorline.access.rights import Rights
from moorline.cli.main import main
from moorline.net.session import Handlers, Session
from moorline.node import access

UNCHECKED = "unchecked"


class Access(access.NodeAccess):
    plain: Handlers
    """As they were declared."""

    def guarded(self, declared: Declarations, roles: Collection[str]) -> Handlers:
        self.plain = {kind: one.handler for kind, one in declared.items()}
        return super().guarded(declared, roles)

    def entered(self, session: access.Entrant) -> Rights:
        rights = super().entered(session)
        if session.identity.principal.startswith(UNCHECKED):
            assert isinstance(session, Session)
            session._handlers, session.allowance = self.plain, None  # noqa: SLF001 - as nobody else may
        return rights


if __name__ == "__main__":
    access.NodeAccess = Access  # type: ignore[misc]
    main()
