"""Room: sessions. What all sessions of a node share: the streams, the links, the Leaders, the catalog."""

from typing import TYPE_CHECKING

from moorline.catalog.sessions import Sessions
from moorline.cluster.links import Links
from moorline.config.settings import Groups as Settings
from moorline.groups.cursor_commits import CursorCommits
from moorline.groups.leaders import Leaders
from moorline.limits import STOP_SESSIONS_MS_MAX
from moorline.net.tasks import Tasks
from moorline.topics.directory import StreamDirectory
from moorline.wire.group import ForBorrower

if TYPE_CHECKING:
    from moorline.sessions.session import TopicSession


class Context:
    def __init__(
        self,
        directory: StreamDirectory,
        links: Links,
        leaders: Leaders,
        cursor_commits: CursorCommits,
        sessions: Sessions,
        settings: Settings,
    ) -> None:
        self.directory = directory
        self.links = links
        self.leaders = leaders
        self.cursor_commits = cursor_commits
        self.sessions = sessions
        self.settings = settings
        self.open_sessions: set[TopicSession] = set()
        self.settling: set[TopicSession] = set()
        """Durable ones whose connection is over and whose last commit is not."""
        self.borrowers: dict[str, TopicSession] = {}
        """Where what a Leader on another node says to a Borrower goes."""
        self.tasks = Tasks("a task of a session failed")
        links.hear(ForBorrower, self._for_borrower)
        links.lost.append(self._node_lost)

    def forget(self, session: "TopicSession") -> None:
        self.open_sessions.discard(session)
        for subscription in session.subscriptions.values():
            self.borrowers.pop(subscription.borrower, None)

    def _for_borrower(self, node: str, said: ForBorrower) -> None:  # noqa: ARG002
        message = said.message
        session = self.borrowers.get(message.borrower)
        if session is not None:
            session.from_leader(message)

    def _node_lost(self, node: str) -> None:
        for session in list(self.open_sessions):
            session.node_lost(node)

    async def close(self) -> None:
        await self.tasks.finish(STOP_SESSIONS_MS_MAX)
