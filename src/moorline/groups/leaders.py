"""Room: groups. The Leaders of this node, and the registry that finds those of other nodes.

A Borrower that wants a Leader asks the registry of its own node. It claims the group in the catalog;
where another node holds it, the Borrower's message is passed on to there. Leases are
renewed for all groups in one statement.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from moorline.catalog.groups import GroupRow, Groups
from moorline.cluster.links import Links
from moorline.config.settings import Groups as Settings
from moorline.core.group.events import End, Fenced, LeaderOptions, LeaseHeld, Led
from moorline.core.group.leader import Leader
from moorline.core.group.message import (
    BorrowerMessage,
    Disconnect,
    Invalidate,
    LeaderWanted,
    Ping,
    UpdateProgress,
)
from moorline.core.group.queue_leader import QueueLeader
from moorline.core.stream import Shard
from moorline.core.topic import Mode
from moorline.errors import MoorlineError, NotFound
from moorline.groups.cursor_commits import CursorCommits
from moorline.groups.leader_host import Counts, Home, LeaderHost
from moorline.limits import CLAIM_PAUSE_MS, GROUPS_LED_MAX, STOP_LEADERS_MS_MAX
from moorline.net.clock import monotonic_ms
from moorline.net.tasks import Tasks
from moorline.topics.directory import ShardExtents, StreamDirectory, by_offset
from moorline.wire.group import ForLeader

log = logging.getLogger("moorline.groups")


class LedElsewhere(NamedTuple):
    """Another node leads, under that epoch."""

    node: str
    epoch: int


class Leaders:
    """The groups led here, by their number in the catalog."""

    def __init__(
        self,
        groups: Groups,
        cursor_commits: CursorCommits,
        directory: StreamDirectory,
        links: Links,
        settings: Settings,
    ) -> None:
        self.groups = groups
        self.cursor_commits = cursor_commits
        self.directory = directory
        self.links = links
        self.led: dict[int, LeaderHost] = {}
        self._by_message: dict[int, LeaderHost] = {}
        """Those of them that hand out single messages, and must know of every new one."""
        self.counts = Counts()
        self.stirred: Callable[[GroupRow], None] = lambda _: None
        """Called with a group that is led here whenever its Leader hears or says something."""
        self._settings = settings
        self._claims: dict[int, asyncio.Task[LeaderHost | LedElsewhere | None]] = {}
        self._wanting: dict[int, dict[str, tuple[LeaderWanted, Home]]] = {}
        """Borrowers that wait for a group's Leader to be found, by the group and by their ids."""
        self._found_at: dict[int, str] = {}
        """The node that was found to lead a group, the groups that were asked for last."""
        self._failures = 0
        """Claims that failed since the last one that did not."""
        self._is_closing = False
        self.is_draining = False
        """Whether this node leads no group that it does not lead yet: it is to be stopped."""
        self._tasks = Tasks("a task of a Leader failed")
        directory.reshaped.append(self._reshaped)
        directory.local.moved.append(self._moved)
        directory.moved.append(self._grown)

    # --- what Borrowers say -----------------------------------------------------------------------

    def hear(self, reader: int, message: BorrowerMessage, home: Home, *, passed_on: bool) -> None:
        """A message for the Leader of a group; `passed_on` by another node, which asked the catalog."""
        host = self.led.get(reader)
        if isinstance(message, Disconnect):
            # Perhaps the Leader is here since a moment ago, and has not heard of it yet: it never will.
            self._wanting.get(reader, {}).pop(message.borrower, None)
        if host is not None:
            host.hear(message, home)
        elif isinstance(message, LeaderWanted):
            if not passed_on:
                self._want(reader, message, home)
        elif isinstance(message, Disconnect):
            if not passed_on:
                self._want_no_more(reader, message)
        elif isinstance(message, Ping | UpdateProgress):
            # Whoever led here does not any more: the Borrower need not wait for its ping to time out.
            home.from_leader(Invalidate(message.borrower, message.epoch, "UNKNOWN"))

    def _want(self, reader: int, message: LeaderWanted, home: Home) -> None:
        """Borrowers ask again and again: the catalog is asked for all of a group at once."""
        wanting = self._wanting.get(reader)
        if wanting is None:
            wanting = self._wanting[reader] = {}
            self.spawn(self._find(reader))
        wanting[message.borrower] = (message, home)

    def _want_no_more(self, reader: int, message: Disconnect) -> None:
        """It goes before it heard from a Leader, who may have heard of it, and would wait for it."""
        node = self._found_at.get(reader)
        if node is not None:
            self.links.send(node, ForLeader(reader, message))

    async def _find(self, reader: int) -> None:
        found: LeaderHost | LedElsewhere | None = None
        is_gone = False
        try:
            found = await self.lead(reader)
            if found is None:
                await asyncio.sleep(self._pause_ms() / 1_000)
        except NotFound:
            is_gone = True
        finally:
            wanting = self._wanting.pop(reader)
        for message, home in wanting.values():
            if is_gone:
                # It was deleted while this member was out of reach of its Leader.
                home.from_leader(Invalidate(message.borrower, 0, "DELETED"))
            elif isinstance(found, LeaderHost):
                found.hear(message, home)
            elif found is not None:
                self.links.send(found.node, ForLeader(reader, message))
        if isinstance(found, LedElsewhere):
            self._found_at.pop(reader, None)
            self._found_at[reader] = found.node
            if len(self._found_at) > GROUPS_LED_MAX:
                del self._found_at[next(iter(self._found_at))]

    def _pause_ms(self) -> int:
        """Longer each time, while the catalog does not answer; never longer than a lease."""
        return int(min(CLAIM_PAUSE_MS << min(self._failures, 10), self._settings.lease_ms))

    async def lead(self, reader: int) -> "LeaderHost | LedElsewhere | None":
        """Leads a group if nobody else does; who does, or None if nobody can now.

        Raises `NotFound` for a group that is there no more.
        """
        host = self.led.get(reader)
        if host is not None:
            return host
        if self._is_closing:
            return None
        claim = self._claims.get(reader)
        if claim is None:
            claim = self._claims[reader] = asyncio.create_task(self._claim(reader))
            claim.add_done_callback(lambda _: self._claims.pop(reader, None))
        return await asyncio.shield(claim)

    async def _claim(self, reader: int) -> "LeaderHost | LedElsewhere | None":
        try:
            found = await self._claimed(reader)
        except NotFound:
            raise
        except (MoorlineError, OSError) as error:
            self._failures += 1
            log.warning("a group cannot be claimed", extra={"error": str(error)})
            return None
        self._failures = 0
        return found

    async def _claimed(self, reader: int) -> "LeaderHost | LedElsewhere | None":
        if len(self.led) >= GROUPS_LED_MAX:
            log.error("this node leads as many groups as it can", extra={"groups": len(self.led)})
            return None
        if self.is_draining:
            group = await self._group(reader)
            is_elsewhere = group.leader not in ("", self.links.node)
            return LedElsewhere(group.leader, group.epoch) if is_elsewhere else None
        asked_ms = monotonic_ms()
        claim = await self.groups.claim(reader, self.links.node, self._settings.lease_ms)
        if claim is None:
            group = await self._group(reader)
            is_elsewhere = group.leader not in ("", self.links.node)
            return LedElsewhere(group.leader, group.epoch) if is_elsewhere else None
        # If one of these fails, the claim stands, and the next one of this node is granted at once.
        group = await self._group(reader)
        cursors = await self.cursor_commits.load(reader)
        if self._is_closing:
            await self.groups.resign(reader, claim.epoch)
            return None
        kind = QueueLeader if group.name.mode is Mode.QUEUE else Leader
        leader = kind(
            str(group.name),
            self.links.node,
            claim.epoch,
            cursors,
            asked_ms + self._settings.lease_ms,
            self._options(group),
        )
        host = self.led[reader] = LeaderHost(self, group, leader, self.counts)
        if group.name.mode is Mode.QUEUE:
            self._by_message[reader] = host
        self.counts.elections += 1
        log.info("leads", extra={"group": str(group.name), "epoch": claim.epoch})
        host.post(Led())
        host.see(self.directory.shard_extents())
        return host

    async def _group(self, reader: int) -> GroupRow:
        group = await self.groups.of(reader)
        if group is None:
            raise NotFound("there is no such group any more")
        return group

    def _options(self, group: GroupRow) -> LeaderOptions:
        settings = self._settings
        return LeaderOptions(
            tick_ms=max(10, settings.ping_ms // 2),
            resend_ms=settings.ping_ms,
            replan_ms=settings.rebalance_ms,
            commit_ms=settings.commit_ms,
            borrower_ms=settings.member_timeout_ms,
            revoke_ms=settings.revoke_ms,
            idle_ms=settings.idle_ms,
            deliveries_max=group.deliveries_max,
            lock_ms=settings.lock_ms,
            load_ms=settings.load_ms,
        )

    # --- streams ----------------------------------------------------------------------------------

    async def starts(
        self, node: str, group: GroupRow, shard_extents: ShardExtents
    ) -> dict[Shard, int]:
        """Where a group begins in these shards of a node, which are new to it; none while it is away."""
        if group.start_us == 0:
            return dict(by_offset(shard_extents, 0))
        try:
            ends = await self.directory.offsets_at(node, group.start_us)
        except (MoorlineError, OSError) as error:
            log.debug("a start cannot be found yet", extra={"node": node, "error": str(error)})
            return {}
        if group.start_offset is None:
            return ends
        # One that was beyond the end when the group began or was moved means the end of that time.
        found = dict(by_offset(shard_extents, group.start_offset))
        return {shard: min(offset, ends[shard]) for shard, offset in found.items() if shard in ends}

    def _reshaped(self, shard_extents: ShardExtents) -> None:
        for host in list(self.led.values()):
            host.see(shard_extents)

    def _moved(self, shards: list[int]) -> None:
        if self._by_message:
            self._grown(self.directory.local.shard_extents(shards))

    def _grown(self, shard_extents: ShardExtents) -> None:
        for host in list(self._by_message.values()):
            host.see(shard_extents)

    # --- leases -----------------------------------------------------------------------------------

    async def renew_forever(self) -> None:
        lease_ms = self._settings.lease_ms
        while True:
            await asyncio.sleep(lease_ms / 4_000)
            held = {reader: one.leader.epoch for reader, one in self.led.items()}
            if not held:
                continue
            asked_ms = monotonic_ms()
            try:
                async with asyncio.timeout(lease_ms / 2_000):
                    still = await self.groups.renew_all(list(held.items()), lease_ms)
            except (MoorlineError, OSError, TimeoutError) as error:
                log.warning("leases were not renewed", extra={"error": str(error) or "no answer"})
                continue
            except Exception:
                # Without this task every group of the node would be lost within a lease.
                log.exception("leases were not renewed")
                continue
            for reader, epoch in held.items():
                host = self.led.get(reader)
                if host is not None and host.leader.epoch == epoch:
                    until_ms = asked_ms + lease_ms
                    host.post(LeaseHeld(until_ms) if reader in still else Fenced())

    def ended(self, host: LeaderHost, reason: str) -> None:
        reader = host.group.reader
        if self.led.get(reader) is host:
            del self.led[reader]
            self._by_message.pop(reader, None)
        host.driver.close()
        log.info("leads no more", extra={"group": str(host.group.name), "reason": reason})
        if reason == "FENCED":
            self.counts.fenced += 1
        elif reason == "LEASE":
            self.counts.lapsed += 1
        elif reason in ("IDLE", "STOPPING", "FAILED"):
            self.spawn(self._resign(reader, host.leader.epoch))

    async def _resign(self, reader: int, epoch: int) -> None:
        try:
            await self.groups.resign(reader, epoch)
        except (MoorlineError, OSError) as error:
            log.info("the lease runs out by itself", extra={"error": str(error)})

    def leaving(self) -> list["LeaderHost"]:
        """Those that another node could lead now."""
        return [host for host in self.led.values() if not host.is_bound_here]

    def leave(self, host: "LeaderHost") -> None:
        """What is to be stored is stored, and the group is free for another node."""
        host.post(End("STOPPING"))

    async def close(self) -> None:
        """Stores what is to be stored, and leaves the groups to others at once."""
        self._is_closing = True
        hosts = list(self.led.values())
        for host in hosts:
            host.post(End("STOPPING"))
        if hosts:
            await asyncio.wait([one.stopped for one in hosts], timeout=STOP_LEADERS_MS_MAX / 1_000)
        await self._tasks.finish(STOP_LEADERS_MS_MAX)
        for claim in self._claims.values():
            claim.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)
