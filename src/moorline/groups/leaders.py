"""Room: groups. The Leaders of this node, and the registry that finds those of other nodes.

A Borrower that wants a Leader asks the registry of its own node. It claims the group in the catalog;
where another node holds it, the Borrower's message is passed on to there. Leases are
renewed for all groups in one statement.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from moorline.catalog.groups import GroupRow, Groups
from moorline.config.settings import Groups as Settings
from moorline.core.effects import Event, Received, Send
from moorline.core.group_message import (
    BorrowerMessage,
    Disconnect,
    Invalidate,
    LeaderMessage,
    LeaderWanted,
    Ping,
    UpdateProgress,
)
from moorline.core.leader import (
    Commit,
    CommitFailed,
    Committed,
    End,
    Fenced,
    GapFound,
    Leader,
    LeaderOptions,
    LeaseHeld,
    Led,
    LinesSeen,
    Seek,
    Stopped,
)
from moorline.core.queue_leader import QueueLeader
from moorline.core.stream import Shard
from moorline.core.topic import Mode
from moorline.errors import CallFailed, MoorlineError
from moorline.groups.cluster import Cluster, Lines
from moorline.groups.places import Places
from moorline.limits import CLAIM_PAUSE_MS, GROUPS_LED_MAX, STOP_LEADERS_MS_MAX
from moorline.net.clock import monotonic_ms
from moorline.net.driver import Driver

log = logging.getLogger("moorline.groups")


class Home(Protocol):
    """Where the Borrower of a message lives: a session of this node, or the link to another node."""

    def from_leader(self, message: LeaderMessage) -> None: ...


class Leading:
    """A Leader and what is around it."""

    def __init__(
        self, leaders: "Leaders", group: GroupRow, leader: Leader, counts: "Counts"
    ) -> None:
        self.group = group
        self.leader = leader
        self.gaps: list[GapFound] = []
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._leaders = leaders
        self._loop = asyncio.get_running_loop()
        self._counts = counts
        self._homes: dict[str, Home] = {}
        self._starting: set[Shard] = set()
        self._sought: list[asyncio.Future[None]] = []
        self.driver = Driver(
            leader,
            {Send: self._send, Commit: self._commit, GapFound: self._gap, Stopped: self._stop},
            self._failed,
        )

    def post(self, event: Event) -> None:
        if not self.stopped.done():
            self.driver.post(event)

    def hear(self, message: BorrowerMessage, home: Home) -> None:
        if isinstance(message, LeaderWanted):
            self._homes[message.borrower] = home
        self.post(Received(message.borrower, message))
        if isinstance(message, Disconnect):
            self._homes.pop(message.borrower, None)

    def see(self, lines: Lines) -> None:
        """Tells the Leader of streams; where a shard is new to the group, its start is found first."""
        known = [
            (shard, extents, 0) for shard, extents in lines.items() if shard in self.leader.lines
        ]
        if known:
            self.post(LinesSeen(tuple(known)))
        unknown = {
            shard: extents
            for shard, extents in lines.items()
            if shard not in self.leader.lines and shard not in self._starting
        }
        if unknown:
            self._starting.update(unknown)
            self._leaders.spawn(self._begin(unknown))

    async def _begin(self, lines: Lines) -> None:
        try:
            starts = await self._leaders.starts(self.group.start_us, lines)
            self.post(
                LinesSeen(
                    tuple(
                        (shard, self._leaders.cluster.line(shard) or lines[shard], starts[shard])
                        for shard in lines
                        if shard in starts
                    )
                )
            )
        finally:
            self._starting.difference_update(lines)

    async def seek(self, seek: Seek) -> None:
        """Moves the group; returns when that is stored."""
        sought: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sought.append(sought)
        self.post(seek)
        either: list[asyncio.Future[Any]] = [sought, self.stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not sought.done():
            raise CallFailed("the group has another Leader now: try again")

    def _send(self, send: Send) -> None:
        home = self._homes.get(send.peer)
        if home is not None:
            # Later: a member of this node would answer within this step, a thousand grants a thousand times.
            self._loop.call_soon(home.from_leader, send.message)
        if isinstance(send.message, Invalidate):
            self._homes.pop(send.peer, None)

    async def _commit(self, commit: Commit) -> Event:
        try:
            held = await self._leaders.places.commit(
                self.group.reader, self.leader.epoch, commit.places, seek=commit.seek
            )
        except (MoorlineError, OSError) as error:
            self._counts.commits_failed += 1
            log.warning(
                "places were not stored, and are tried again",
                extra={"group": str(self.group.name), "error": str(error)},
            )
            return CommitFailed(commit.number)
        self._counts.commits += 1
        if commit.seek and held:
            for sought in self._sought:
                sought.set_result(None)
            self._sought.clear()
        return Committed(commit.number) if held else Fenced()

    def _gap(self, gap: GapFound) -> None:
        self._counts.messages_missed += gap.count
        self.gaps.append(gap)
        log.warning(
            "messages were gone before the group had read them",
            extra={
                "group": str(self.group.name),
                "shard": str(gap.shard),
                "first": gap.first,
                "upto": gap.upto,
                "messages": gap.count,
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


class Counts(msgspec.Struct):
    commits: int = 0
    commits_failed: int = 0
    fenced: int = 0
    messages_missed: int = 0
    elections: int = 0


class Leaders:
    """The groups led here, by their number in the catalog."""

    def __init__(
        self, groups: Groups, places: Places, cluster: Cluster, settings: Settings
    ) -> None:
        self.groups = groups
        self.places = places
        self.cluster = cluster
        self.led: dict[int, Leading] = {}
        self.counts = Counts()
        self._settings = settings
        self._claims: dict[int, asyncio.Task[Leading | str | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.reshaped.append(self._reshaped)
        cluster.local.moved.append(self._moved)

    # --- what Borrowers say -----------------------------------------------------------------------

    def hear(self, reader: int, message: BorrowerMessage, home: Home, *, passed_on: bool) -> None:
        """A message for the Leader of a group; `passed_on` by another node, which asked the catalog."""
        leading = self.led.get(reader)
        if leading is not None:
            leading.hear(message, home)
        elif isinstance(message, LeaderWanted):
            if not passed_on:
                self.spawn(self._find(reader, message, home))
        elif isinstance(message, Ping | UpdateProgress):
            # Whoever led here does not any more: the Borrower need not wait for its ping to time out.
            home.from_leader(Invalidate(message.borrower, message.epoch, "UNKNOWN"))

    async def _find(self, reader: int, message: LeaderWanted, home: Home) -> None:
        found = await self.lead(reader)
        if isinstance(found, Leading):
            found.hear(message, home)
        elif found is not None:
            self.cluster.to_leader(found, reader, message)

    async def lead(self, reader: int) -> "Leading | str | None":
        """Leads a group if nobody else does; the name of the node that does, or None if nobody can now."""
        leading = self.led.get(reader)
        if leading is not None:
            return leading
        claim = self._claims.get(reader)
        if claim is None:
            claim = self._claims[reader] = asyncio.create_task(self._claim(reader))
            claim.add_done_callback(lambda _: self._claims.pop(reader, None))
        try:
            return await asyncio.shield(claim)
        except (MoorlineError, OSError) as error:
            log.warning("a group cannot be claimed", extra={"error": str(error)})
            return None

    async def _claim(self, reader: int) -> "Leading | str | None":
        if len(self.led) >= GROUPS_LED_MAX:
            log.error("this node leads as many groups as it can", extra={"groups": len(self.led)})
            return None
        asked_ms = monotonic_ms()
        claim = await self.groups.claim(reader, self.cluster.node, self._settings.lease_ms)
        if claim is None:
            held = await self.groups.leader(reader)
            if held is None:
                await asyncio.sleep(CLAIM_PAUSE_MS / 1_000)
            return held[0] if held is not None and held[0] != self.cluster.node else None
        group = next((row for row in await self.groups.list() if row.reader == reader), None)
        if group is None:
            return None
        places = await self.places.load(reader)
        kind = QueueLeader if group.name.mode is Mode.QUEUE else Leader
        leader = kind(
            str(group.name),
            self.cluster.node,
            claim.epoch,
            places,
            asked_ms + self._settings.lease_ms,
            self._options(group),
        )
        leading = self.led[reader] = Leading(self, group, leader, self.counts)
        self.counts.elections += 1
        log.info("leads", extra={"group": str(group.name), "epoch": claim.epoch})
        leading.post(Led())
        leading.see(self.cluster.lines())
        return leading

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
        )

    # --- streams ----------------------------------------------------------------------------------

    async def starts(self, start_us: int, lines: Lines) -> dict[Shard, int]:
        """Where a group that begins at a time begins in these shards; those of a node that is away wait."""
        found: dict[Shard, int] = {}
        if start_us == 0:
            return {shard: extents[0].first for shard, extents in lines.items() if extents}
        for node in sorted({shard.node for shard in lines}):
            try:
                found |= await self.cluster.offsets_at(node, start_us)
            except (MoorlineError, OSError) as error:
                log.warning(
                    "a start cannot be found yet", extra={"node": node, "error": str(error)}
                )
        return found

    def _reshaped(self, lines: Lines) -> None:
        for leading in list(self.led.values()):
            leading.see(lines)

    def _moved(self, shards: list[int]) -> None:
        """Only Leaders that hand out single messages must know of every new one."""
        queues = [one for one in self.led.values() if one.group.name.mode is Mode.QUEUE]
        if queues:
            lines = self.cluster.local.lines(shards)
            for leading in queues:
                leading.see(lines)

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
                log.warning("leases were not renewed", extra={"error": str(error)})
                continue
            for reader, epoch in held.items():
                leading = self.led.get(reader)
                if leading is not None and leading.leader.epoch == epoch:
                    until_ms = asked_ms + lease_ms
                    leading.post(LeaseHeld(until_ms) if reader in still else Fenced())

    def ended(self, leading: Leading, reason: str) -> None:
        reader = leading.group.reader
        if self.led.get(reader) is leading:
            del self.led[reader]
        leading.driver.close()
        log.info("leads no more", extra={"group": str(leading.group.name), "reason": reason})
        if reason == "FENCED":
            self.counts.fenced += 1
        elif reason in ("IDLE", "STOPPING", "FAILED"):
            self.spawn(self._resign(reader, leading.leader.epoch))

    async def _resign(self, reader: int, epoch: int) -> None:
        try:
            await self.groups.resign(reader, epoch)
        except (MoorlineError, OSError) as error:
            log.info("the lease runs out by itself", extra={"error": str(error)})

    async def close(self) -> None:
        """Stores what is to be stored, and leaves the groups to others at once."""
        leadings = list(self.led.values())
        for leading in leadings:
            leading.post(End("STOPPING"))
        if leadings:
            await asyncio.wait(
                [one.stopped for one in leadings], timeout=STOP_LEADERS_MS_MAX / 1_000
            )
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_LEADERS_MS_MAX / 1_000)
        for task in self._tasks:
            task.cancel()

    # --- tasks ------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())
