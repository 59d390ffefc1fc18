"""Room: groups. What all sessions of a node share: the cluster, the Leaders, the catalog."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from moorline.catalog.sessions import Sessions
from moorline.config.settings import Groups as Settings
from moorline.core.group_message import LeaderMessage
from moorline.groups.cluster import Cluster
from moorline.groups.leaders import Leaders
from moorline.groups.places import Places

if TYPE_CHECKING:
    from moorline.groups.session import TopicSession

log = logging.getLogger("moorline.groups")


class Context:
    def __init__(
        self,
        cluster: Cluster,
        leaders: Leaders,
        places: Places,
        sessions: Sessions,
        settings: Settings,
    ) -> None:
        self.cluster = cluster
        self.leaders = leaders
        self.places = places
        self.sessions = sessions
        self.settings = settings
        self.open_sessions: set[TopicSession] = set()
        self.settling: set[TopicSession] = set()
        """Durable ones whose connection is over and whose last commit is not."""
        self.borrowers: dict[str, TopicSession] = {}
        """Where what a Leader on another node says to a Borrower goes."""
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.for_borrower = self._for_borrower
        cluster.lost.append(self._node_lost)

    def forget(self, session: "TopicSession") -> None:
        self.open_sessions.discard(session)
        for subscription in session.subscriptions.values():
            self.borrowers.pop(subscription.borrower, None)

    def _for_borrower(self, message: LeaderMessage) -> None:
        session = self.borrowers.get(message.borrower)
        if session is not None:
            session.from_leader(message)

    def _node_lost(self, node: str) -> None:
        for session in list(self.open_sessions):
            session.node_lost(node)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        for task in self._tasks:
            task.cancel()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())
