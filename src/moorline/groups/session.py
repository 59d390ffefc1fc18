"""Room: groups. One client's session: its subscriptions, private and shared, over one connection.

The shell around the session's Shared Subscription Handler and its private subscriptions: their effects become
messages to Leaders, timers, and pushes to the client.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable
from itertools import count

from moorline.catalog.sessions import SessionRow
from moorline.core.agent import SubscriptionOver, ToLeader
from moorline.core.borrower import BorrowerTimes
from moorline.core.effects import CancelTimer, Effect, SetTimer
from moorline.core.feed import Feed
from moorline.core.group_message import (
    BorrowerMessage,
    Disconnect,
    LeaderConnectResponse,
    LeaderMessage,
    LeaderWanted,
)
from moorline.core.handler import FeedClosed, FeedOpened, FeedStopped, Handler
from moorline.core.private import PrivateLines, Skipped
from moorline.core.progress import Place
from moorline.core.stream import Shard
from moorline.core.topic import SharedName
from moorline.errors import MoorlineError
from moorline.groups.cluster import Lines
from moorline.groups.context import Context
from moorline.groups.dead_letters import bury
from moorline.groups.reading import Reading, Running, Window
from moorline.limits import PRIVATE_COMMIT_MS, PROGRESS_MS
from moorline.net.clock import monotonic_ms
from moorline.net.session import Session
from moorline.wire.topic import (
    FeedBegun,
    FeedEnded,
    FeedStopping,
    MessagesLost,
    TopicSubscriptionEnded,
)

log = logging.getLogger("moorline.groups")


class Subscription:
    """One subscription of a session."""

    __slots__ = ("filter", "group", "is_leaving", "private", "reader", "window")

    def __init__(
        self, filter_text: str, window: Window, group: SharedName | None, reader: int
    ) -> None:
        self.filter = filter_text
        self.window = window
        self.group = group
        self.reader = reader
        """Number of the group, or of the private place in the catalog; 0 for a place in memory."""
        self.private: PrivateLines | None = None
        self.is_leaving = False
        """Unsubscribed, and known until the last of its feeds is drained."""


class TopicSession:
    """The topics' side of one connection."""

    def __init__(self, session: Session, context: Context) -> None:
        self.session = session
        self.row: SessionRow | None = None
        """The durable session, if it is one."""
        self.ends_with_connection = False
        """The client asked for a session that nobody comes back to."""
        self.subscriptions: dict[int, Subscription] = {}
        self.is_open = True
        self._context = context
        self._numbers = count(1)
        self._feeds = count(1)
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._left_early: dict[str, int] = {}
        """Borrowers that left before a Leader had answered, and their groups."""
        self._storing = asyncio.Lock()
        self._settled = asyncio.Event()
        self._settled.set()
        self._commit_due = False
        self._handlers: Handler | None = None
        self.reading = Reading(session, context.cluster, self._changed, self._bury)
        session.on_end.append(self._ended)

    @property
    def name(self) -> str:
        """What operators see of it."""
        if self.row is not None:
            return self.row.name
        return f"{self._context.cluster.node}/{self.session.name.replace(' ', '-')}"

    @property
    def _handler(self) -> Handler:
        if self._handlers is None:
            settings = self._context.settings
            times = BorrowerTimes(
                find_leader_ms=max(20, settings.ping_ms // 4),
                ping_ms=settings.ping_ms,
                ping_timeout_ms=max(settings.ping_ms, settings.member_timeout_ms // 2),
                unsubscribe_ms=min(5_000, settings.revoke_ms),
            )
            self._handlers = Handler(
                self.name,
                lambda: secrets.token_hex(8),
                lambda: next(self._feeds),
                times,
                progress_ms=PROGRESS_MS,
            )
        return self._handlers

    # --- subscriptions ----------------------------------------------------------------------------

    def subscribe_shared(
        self, filter_text: str, group: SharedName, reader: int, size: int, qos: int
    ) -> int:
        """Takes part in a group; a second time changes only the window and the qos."""
        for number, known in self.subscriptions.items():
            if known.reader == reader and known.group is not None and not known.is_leaving:
                self.reading.change(known.window, size, qos)
                return number
        number = next(self._numbers)
        window = Window(number, group.filter, size, qos)
        self.subscriptions[number] = Subscription(filter_text, window, group, reader)
        self._perform(self._handler.on_subscribe(number, size, monotonic_ms()))
        return number

    def subscribe_private(
        self,
        filter_text: str,
        reader: int,
        places: Iterable[tuple[Shard, Place]],
        size: int,
        qos: int,
    ) -> int:
        number = next(self._numbers)
        window = Window(number, filter_text, size, qos)
        subscription = Subscription(filter_text, window, None, reader)
        subscription.private = PrivateLines(number, places, lambda: next(self._feeds))
        self.subscriptions[number] = subscription
        return number

    def find(self, filter_text: str) -> int | None:
        """The private subscription with that filter."""
        return next(
            (
                number
                for number, known in self.subscriptions.items()
                if known.filter == filter_text and known.group is None
            ),
            None,
        )

    def see(self, number: int, lines: Lines, starts: dict[Shard, int]) -> None:
        """Tells a private subscription of streams; `starts` for those that are new to it."""
        subscription = self.subscriptions.get(number)
        if subscription is None or subscription.private is None:
            return
        for shard, extents in lines.items():
            if subscription.private.knows(shard) or shard in starts:
                start = starts.get(shard, 0)
                self._perform(subscription.private.seen(shard, extents, start))
        self._commit_soon()

    def unsubscribe(self, number: int) -> Subscription | None:
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return None
        if subscription.private is not None:
            self._perform(subscription.private.close())
            del self.subscriptions[number]
        else:
            # Its feeds are drained first: it stays known until the last of them is closed.
            subscription.is_leaving = True
            self._perform(self._handler.on_unsubscribe(number, monotonic_ms()))
            self._forget_if_over(number)
        return subscription

    def end_subscription(self, number: int, code: str) -> None:
        """Somebody else ended it: the client is told."""
        subscription = self.subscriptions.pop(number, None)
        if subscription is None:
            return
        if self.session.is_open:
            self.session.send(TopicSubscriptionEnded(number, code))
        if code == "DELETED" and self.row is not None:
            # A session that came back with it would make the group anew.
            self._context.spawn(self._forget_for_good(self.row, subscription.filter))

    async def _forget_for_good(self, row: SessionRow, filter_text: str) -> None:
        try:
            await self._context.sessions.unsubscribe(row.name, row.epoch, filter_text)
        except (MoorlineError, OSError) as error:
            log.warning("a subscription was not removed", extra={"error": str(error)})

    def _forget_if_over(self, number: int) -> None:
        if not self._handler.has_members(number):
            self.subscriptions.pop(number, None)

    # --- Leaders ----------------------------------------------------------------------------------

    def from_leader(self, message: LeaderMessage) -> None:
        if isinstance(message, LeaderConnectResponse) and message.borrower in self._left_early:
            # Its Leader was still being looked for when it left: nobody heard that it did.
            reader = self._left_early.pop(message.borrower)
            self._say(reader, message.leader, Disconnect(message.borrower, message.epoch, ()))
        elif self.is_open:
            self._perform(self._handler.received(message, monotonic_ms()))

    def node_lost(self, node: str) -> None:
        if self.is_open and self._handlers is not None:
            self._perform(self._handlers.node_lost(node, monotonic_ms()))

    def _to_leader(self, effect: ToLeader) -> None:
        subscription = self.subscriptions.get(effect.subscription)
        if subscription is None:
            return
        context = self._context
        message = effect.message
        if isinstance(message, LeaderWanted):
            context.borrowers[message.borrower] = self
        elif isinstance(message, Disconnect):
            if message.epoch == 0:
                self._left_early[message.borrower] = subscription.reader
            else:
                context.borrowers.pop(message.borrower, None)
        self._say(subscription.reader, effect.node, message)

    def _say(self, reader: int, node: str, message: BorrowerMessage) -> None:
        context = self._context
        if node in ("", context.cluster.node):
            context.leaders.hear(reader, message, self, passed_on=False)
        else:
            context.cluster.to_leader(node, reader, message)

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case FeedOpened(feed):
                    self._open_feed(feed)
                case FeedStopped(feed):
                    if self.session.is_open:
                        self.session.send(FeedStopping(feed.number))
                case FeedClosed(feed):
                    self._close_feed(feed)
                case ToLeader():
                    self._to_leader(effect)
                case SetTimer(name, after_ms):
                    self._cancel(name)
                    self._timers[name] = self._loop.call_later(after_ms / 1_000, self._fire, name)
                case CancelTimer(name):
                    self._cancel(name)
                case SubscriptionOver(number, reason):
                    self.end_subscription(number, reason)
                case Skipped(number, shard, first, upto):
                    self._tell_lost(number, shard, first, upto)
                case _:
                    raise AssertionError(f"nobody to perform {effect}")

    def _open_feed(self, feed: Feed) -> None:
        subscription = self.subscriptions[feed.subscription]
        self.session.send(FeedBegun(feed.number, feed.subscription, *feed.stream))
        self.reading.begin(feed, subscription.window)

    def _close_feed(self, feed: Feed) -> None:
        self.reading.end(feed)
        if self.session.is_open:
            self.session.send(FeedEnded(feed.number))
        subscription = self.subscriptions.get(feed.subscription)
        if subscription is None or subscription.group is None:
            return
        self._loop.call_soon(self._forget_if_over, feed.subscription)
        # Retention may be why it is over: the Leader passes over what is gone, the member must know it.
        extents = self._context.cluster.line(feed.stream.line)
        begins = extents[0].first if extents else 0
        for low, end in ((0, begins),) if feed.ranges is None else feed.ranges.clip(0, begins):
            for first, upto in feed.progress.open_ranges(low, end):
                for start, stop in feed.returned.missing(first, upto):
                    self._tell_lost(feed.subscription, feed.stream.line, start, stop)

    def _tell_lost(self, number: int, shard: Shard, first: int, upto: int) -> None:
        if self.session.is_open:
            self.session.send(
                MessagesLost(number, shard.node, shard.number, first, upto, "RETENTION")
            )

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        if self.is_open:
            self._perform(self._handler.timer(name, monotonic_ms()))
            if name.endswith("unsubscribe"):
                for number in list(self.subscriptions):
                    if self.subscriptions[number].group is not None:
                        self._forget_if_over(number)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _changed(self, feed: Feed) -> None:
        subscription = self.subscriptions.get(feed.subscription)
        if subscription is None:
            return
        if subscription.private is not None:
            self._perform(subscription.private.changed(feed))
            self._commit_soon()
        else:
            self._perform(self._handler.changed(feed, monotonic_ms()))

    # --- dead letters -----------------------------------------------------------------------------

    def _bury(self, running: Running, offset: int) -> None:
        subscription = self.subscriptions.get(running.feed.subscription)
        if subscription is not None and subscription.group is not None:
            self._context.spawn(
                bury(self._context.cluster, self.reading, running, offset, subscription.group)
            )

    # --- places of private subscriptions ----------------------------------------------------------

    def _commit_soon(self) -> None:
        if self.row is None or self._commit_due:
            return
        self._commit_due = True
        self._loop.call_later(PRIVATE_COMMIT_MS / 1_000, self._commit)

    def _commit(self) -> None:
        if self._commit_due:
            self._context.spawn(self.commit())

    async def commit(self) -> None:
        """Stores what changed of the places of a durable session; one commit after the other."""
        async with self._storing:
            self._commit_due = False
            for subscription in list(self.subscriptions.values()):
                if subscription.private is not None and subscription.reader:
                    await self._commit_one(subscription, subscription.private)

    async def _commit_one(self, subscription: Subscription, private: PrivateLines) -> None:
        assert self.row is not None
        places = private.take_dirty()
        if not places:
            return
        try:
            held = await self._context.places.commit(subscription.reader, self.row.epoch, places)
        except (MoorlineError, OSError) as error:
            log.warning("a session's places were not stored", extra={"error": str(error)})
            private.put_back(shard for shard, _ in places)
            self._commit_soon()
            return
        if not held:
            log.info("a session was taken over", extra={"member": self.name})
            self.take_over()

    def take_over(self) -> None:
        """Another connection has opened the session: everything here is over."""
        if not self.session.is_open:
            return
        for number in self.subscriptions:
            self.session.send(TopicSubscriptionEnded(number, "TAKEN_OVER"))
        # The subscriptions stay known: their Borrowers say their last word when the connection is over.
        self.session.close("TAKEN_OVER", "another connection has opened this session")

    async def hand_over(self) -> None:
        """The same, and returns when what the client has acknowledged until now is stored."""
        self.take_over()
        await self.commit()
        await self._settled.wait()

    # --- the end ----------------------------------------------------------------------------------

    def _ended(self) -> None:
        """The connection is over; whoever says DONE leaves in peace, others may have died of a message."""
        if not self.is_open:
            return
        blame = self.session.end_code not in ("DONE", "STOPPING", "TAKEN_OVER")
        if self._handlers is not None:
            self._perform(self._handlers.on_disconnect(monotonic_ms(), blame=blame))
        self.is_open = False
        for name in list(self._timers):
            self._cancel(name)
        self._context.forget(self)
        if self.row is not None:
            self._settled.clear()
            self._context.settling.add(self)
            self._context.spawn(self._settle(self.row))
        self.reading.close()

    async def _settle(self, row: SessionRow) -> None:
        """The last commit; whoever opens the session again waits for it."""
        try:
            await self.commit()
            if self.ends_with_connection and self.session.end_code != "TAKEN_OVER":
                await self._remove(row)
        finally:
            self._context.settling.discard(self)
            self._settled.set()

    async def _remove(self, row: SessionRow) -> None:
        sessions = self._context.sessions
        try:
            if await sessions.seen(row.name, row.epoch):
                await sessions.remove(row.name)
        except (MoorlineError, OSError) as error:
            log.info("the session expires by itself", extra={"error": str(error)})
