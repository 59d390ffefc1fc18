"""Room: sessions. The places of a durable session on their way into the catalog.

Commits follow one another, with a pause between them. The last one comes after the connection is over, and
whoever opens the session again waits for it: what the client has
acknowledged does not come to it once more.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from moorline.catalog.sessions import SessionRow
from moorline.core.delivery.private_subscription import PrivateSubscription
from moorline.errors import MoorlineError
from moorline.limits import PRIVATE_COMMIT_MS
from moorline.sessions.context import Context
from moorline.sessions.subscription import Subscription

if TYPE_CHECKING:
    from moorline.sessions.session import TopicSession

log = logging.getLogger("moorline.groups")


class SessionCommits:
    """The commits of one session; one that is not durable has nothing to commit."""

    def __init__(self, own: "TopicSession", context: Context) -> None:
        self.settled = asyncio.Event()
        """Set while no last commit is under way."""
        self.settled.set()
        self._own = own
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._storing = asyncio.Lock()
        self._is_due = False

    def soon(self) -> None:
        """Commits what changes from now on within a moment, in one statement."""
        if self._own.row is None or self._is_due:
            return
        self._is_due = True
        self._loop.call_later(PRIVATE_COMMIT_MS / 1_000, self._begin)

    def _begin(self) -> None:
        if self._is_due:
            self._context.tasks.spawn(self.commit())

    async def commit(self) -> None:
        """Stores what changed of the places of a durable session; one commit after the other."""
        async with self._storing:
            self._is_due = False
            for subscription in list(self._own.subscriptions.values()):
                if subscription.private is not None and subscription.reader:
                    await self._commit_one(subscription, subscription.private)

    async def _commit_one(self, subscription: Subscription, private: PrivateSubscription) -> None:
        own = self._own
        assert own.row is not None
        cursors = private.take_dirty()
        if not cursors:
            return
        try:
            held = await self._context.cursor_commits.commit(
                subscription.reader, own.row.epoch, cursors
            )
        except (MoorlineError, OSError) as error:
            log.warning("a session's places were not stored", extra={"error": str(error)})
            private.put_back(shard for shard, _ in cursors)
            self.soon()
            return
        if not held:
            log.info("a session was taken over", extra={"member": own.name})
            own.take_over()

    # --- the end ----------------------------------------------------------------------------------

    def settle(self, row: SessionRow) -> None:
        """The connection is over: what is left is stored, and a session that nobody comes back to removed."""
        self.settled.clear()
        self._context.settling.add(self._own)
        self._context.tasks.spawn(self._settle(row))

    async def _settle(self, row: SessionRow) -> None:
        own = self._own
        try:
            await self.commit()
            if own.ends_with_connection and own.session.end_code != "TAKEN_OVER":
                await self._remove(row)
        finally:
            self._context.settling.discard(own)
            self.settled.set()

    async def _remove(self, row: SessionRow) -> None:
        sessions = self._context.sessions
        try:
            if await sessions.seen(row.name, row.epoch):
                await sessions.remove(row.name)
        except (MoorlineError, OSError) as error:
            log.info("the session expires by itself", extra={"error": str(error)})
