"""Room: groups. A Leader of this node and what is around it: homes of Borrowers, streams, commits."""

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from moorline.catalog.groups import GroupRow
from moorline.core.effects import Event, Received, Send
from moorline.core.group.events import (
    Commit,
    CommitFailed,
    Committed,
    EndsSeen,
    Fenced,
    GapFound,
    LookAtEnds,
    ShardsSeen,
    Stopped,
)
from moorline.core.group.leader import Leader
from moorline.core.group.message import (
    BorrowerMessage,
    Disconnect,
    Invalidate,
    LeaderMessage,
    LeaderWanted,
)
from moorline.core.stream import Shard
from moorline.errors import MoorlineError
from moorline.limits import BORROWERS_MAX, PEER_RETRY_MS
from moorline.net.driver import Driver
from moorline.topics.directory import ShardExtents

if TYPE_CHECKING:
    from moorline.groups.leaders import Leaders

log = logging.getLogger("moorline.groups")


class Counts(msgspec.Struct):
    commits: int = 0
    fenced: int = 0
    lapsed: int = 0
    messages_missed: int = 0
    elections: int = 0


class Home(Protocol):
    """Where the Borrower of a message lives: a session of this node, or the link to another node."""

    is_elsewhere: bool
    """Whether it is the link to another node."""

    def from_leader(self, message: LeaderMessage) -> None: ...


class LeaderHost:
    """A Leader and what is around it."""

    def __init__(
        self, leaders: "Leaders", group: GroupRow, leader: Leader, counts: "Counts"
    ) -> None:
        self.group = group
        self.leader = leader
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._counts = counts
        self._homes: dict[str, Home] = {}
        self._starting: set[Shard] = set()
        self.driver = Driver(
            leader,
            {
                Send: self._send,
                Commit: self._commit,
                GapFound: self._gap,
                LookAtEnds: self._look,
                Stopped: self._stop,
            },
            self._failed,
        )

    @property
    def is_bound_here(self) -> bool:
        """Whether nobody else would lead the group: all its members are at this node."""
        members = self.leader.borrowers
        places = [home.is_elsewhere for one, home in self._homes.items() if one in members]
        return bool(places) and not any(places)

    def post(self, event: Event) -> None:
        if not self.stopped.done():
            self.driver.post(event)

    def hear(self, message: BorrowerMessage, home: Home) -> None:
        if isinstance(message, LeaderWanted):
            self._homes[message.borrower] = home
            if len(self._homes) > 2 * BORROWERS_MAX:
                # Those that the Leader had no room for, and that ask no more.
                known = self.leader.borrowers
                self._homes = {one: at for one, at in self._homes.items() if one in known}
                self._homes[message.borrower] = home
        if not self.stopped.done():
            self.driver.post(Received(message.borrower, message))
        if isinstance(message, Disconnect):
            self._homes.pop(message.borrower, None)
        self._leaders.stirred(self.group)

    def see(self, shard_extents: ShardExtents) -> None:
        """Tells the Leader of streams; where a shard is new to the group, its start is found first."""
        known = [
            (shard, extents, 0)
            for shard, extents in shard_extents.items()
            if shard in self.leader.shards
        ]
        if known:
            self.post(ShardsSeen(tuple(known)))
        unknown = {
            shard: extents
            for shard, extents in shard_extents.items()
            if shard not in self.leader.shards and shard not in self._starting
        }
        # Node by node: one that does not answer holds up its own streams only.
        for node in {shard.home for shard in unknown}:
            new = {shard: unknown[shard] for shard in unknown if shard.home == node}
            self._starting.update(new)
            self._leaders.spawn(self._begin(node, new))

    async def _begin(self, node: str, shard_extents: ShardExtents) -> None:
        """Tries until it knows the starts, or the node is gone, or somebody else leads."""
        directory = self._leaders.directory
        try:
            while not self.stopped.done() and any(
                directory.extents(shard) for shard in shard_extents
            ):
                starts = await self._leaders.starts(node, self.group, shard_extents)
                seen = tuple(
                    (shard, directory.extents(shard) or extents, starts[shard])
                    for shard, extents in shard_extents.items()
                    if shard in starts
                )
                if seen:
                    self.post(ShardsSeen(seen))
                    return
                await asyncio.sleep(PEER_RETRY_MS / 1_000)
        finally:
            self._starting.difference_update(shard_extents)

    def _send(self, send: Send) -> None:
        home = self._homes.get(send.peer)
        if home is not None:
            # Later: a member of this node would answer within this step, a thousand grants a thousand times.
            self._loop.call_soon(home.from_leader, send.message)
        if isinstance(send.message, Invalidate):
            self._homes.pop(send.peer, None)
        self._leaders.stirred(self.group)

    async def _commit(self, commit: Commit) -> Event:
        try:
            held = await self._leaders.cursor_commits.commit(
                self.group.reader, self.leader.epoch, commit.cursors
            )
        except (MoorlineError, OSError) as error:
            log.warning(
                "places were not stored, and are tried again",
                extra={"group": str(self.group.name), "error": str(error)},
            )
            return CommitFailed(commit.number)
        self._counts.commits += 1
        return Committed(commit.number) if held else Fenced()

    def _look(self, look: LookAtEnds) -> Event:  # noqa: ARG002
        """As far as is known here: of another node, what it said last."""
        extents = {shard: self._leaders.directory.extents(shard) for shard in self.leader.shards}
        return EndsSeen(tuple((shard, of[-1].end) for shard, of in extents.items() if of))

    def _gap(self, gap: GapFound) -> None:
        count = gap.upto - gap.first
        self._counts.messages_missed += count
        log.warning(
            "messages were gone before the group had read them",
            extra={
                "group": str(self.group.name),
                "shard": str(gap.shard),
                "first": gap.first,
                "upto": gap.upto,
                "messages": count,
                "reason": gap.reason,
            },
        )

    def _stop(self, stopped: Stopped) -> None:
        if not self.stopped.done():
            self.stopped.set_result(stopped.reason)
        self._leaders.ended(self, stopped.reason)

    def _failed(self, error: Exception) -> None:
        log.error("a Leader failed", exc_info=error, extra={"group": str(self.group.name)})
        if not self.stopped.done():
            self.stopped.set_result("FAILED")
        self._leaders.ended(self, "FAILED")
