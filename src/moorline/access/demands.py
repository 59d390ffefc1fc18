"""Room: access. What handlers refuse by themselves, and operators' acts that they find out late.

    DeleteGroup: demanded(later(demands.telling(self._delete, path_of_call)))

    async def _delete(self, session, call):
        row = await catalog.find(call.group)                     whose it is nobody knew before
        await demands.operate(session, call, path, row.owner)    granted, written down, and still granted

The guard tells the audit of what it refuses before a handler; this does so for what is refused inside one.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from moorline.access.guard import Guarded, Operating, Refusals, demand, is_owners
from moorline.core.access.right import ADMINISTER
from moorline.errors import Denied, OverQuota, RightsUnknown
from moorline.wire.message import Call

Made = TypeVar("Made")


class Demands:
    def __init__(
        self, refusals: Refusals | None = None, operating: Operating | None = None
    ) -> None:
        """Without them nobody hears of anything: for tests of what handlers do, and not of who may."""
        self._refusals = refusals
        self._operating = operating

    def telling(
        self,
        handle: Callable[[Any, Any], Awaitable[Made]],
        path_of_call: Callable[[Any], str] | None = None,
    ) -> Callable[[Any, Any], Awaitable[Made]]:
        """The same handler; the audit hears of each call that it refuses for want of a right, or by a quota.

        `path_of_call` is for refusals that come from another node, and do not say at what.
        """

        async def handle_or_tell(session: Guarded, call: Call) -> Made:
            try:
                return await handle(session, call)
            except OverQuota as error:
                self.tell(session, type(call).__name__, error)
                raise
            except (Denied, RightsUnknown) as error:
                if not error.path and path_of_call is not None:
                    error.path = path_of_call(call)
                self.tell(session, type(call).__name__, error)
                raise

        return handle_or_tell

    def telling_run(
        self, handle: Callable[[Any, Any], Awaitable[Made]]
    ) -> Callable[[Any, Any], Awaitable[Made]]:
        """The same for a handler of several calls, which it refuses together: they are one line."""

        async def handle_or_tell(session: Guarded, calls: list[Call]) -> Made:
            try:
                return await handle(session, calls)
            except (Denied, OverQuota, RightsUnknown) as error:
                self.tell(session, type(calls[0]).__name__, error)
                raise

        return handle_or_tell

    def tell(self, session: Guarded, act: str, error: Denied | OverQuota | RightsUnknown) -> None:
        if self._refusals is not None:
            self._refusals.refused(session, act, error.path, error.code)

    async def operate(
        self, session: Guarded, call: Call, path: str, owner: str | None = None
    ) -> None:
        """Returns when the call may be done: by the owner, or by an operator whose act is written down."""
        rights = session.rights
        demand(rights, ADMINISTER, path, owner)
        if self._operating is None or is_owners(rights, ADMINISTER, owner):
            return
        await self._operating.operating(session, type(call).__name__, path)
        # While the line was written the right may have been taken away.
        demand(rights, ADMINISTER, path, owner)

    async def looked(self, session: Guarded, call: Call, path: str) -> None:
        """Returns when it is written down that somebody looks at what is there."""
        if self._operating is not None:
            await self._operating.looking(session, type(call).__name__, path)
