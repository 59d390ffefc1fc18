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
from moorline.core.group_message import LeaderMessage, LeaderWanted
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

    __slots__ = ("filter", "group", "private", "reader", "start_us", "window")

    def __init__(
        self, filter_text: str, window: Window, group: SharedName | None, reader: int
    ) -> None:
        self.filter = filter_text
        self.window = window
        self.group = group
        self.reader = reader
        """Number of the group, or of the private place in the catalog; 0 for a place in memory."""
        self.private: PrivateLines | None = None
        self.start_us = 0


class TopicSession:
    """The topics' side of one connection."""

    def __init__(self, session: Session, context: Context) -> None:
        self.session = session
        self.row: SessionRow | None = None
        """The durable session, if it is one."""
        self.subscriptions: dict[int, Subscription] = {}
        self.is_open = True
        self._context = context
        self._numbers = count(1)
        self._feeds = count(1)
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._committing = False
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
        """Takes part in a group; a second time changes nothing."""
        for number, known in self.subscriptions.items():
            if known.reader == reader and known.group is not None:
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
            self._perform(self._handler.on_unsubscribe(number, monotonic_ms()))
            self._forget_if_over(number)
        return subscription

    def end_subscription(self, number: int, code: str) -> None:
        """Somebody else ended it: the client is told."""
        if self.subscriptions.pop(number, None) is not None and self.session.is_open:
            self.session.send(TopicSubscriptionEnded(number, code))

    def _forget_if_over(self, number: int) -> None:
        if not self._handler.has_members(number):
            self.subscriptions.pop(number, None)

    # --- Leaders ----------------------------------------------------------------------------------

    def from_leader(self, message: LeaderMessage) -> None:
        if self.is_open:
            self._perform(self._handler.received(message, monotonic_ms()))

    def node_lost(self, node: str) -> None:
        if self.is_open and self._handlers is not None:
            self._perform(self._handlers.node_lost(node, monotonic_ms()))

    def _to_leader(self, effect: ToLeader) -> None:
        subscription = self.subscriptions.get(effect.subscription)
        if subscription is None:
            return
        context = self._context
        if isinstance(effect.message, LeaderWanted):
            context.borrowers[effect.message.borrower] = self
        if effect.node in ("", context.cluster.node):
            context.leaders.hear(subscription.reader, effect.message, self, passed_on=False)
        else:
            context.cluster.to_leader(effect.node, subscription.reader, effect.message)

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
                    self.reading.end(feed)
                    if self.session.is_open:
                        self.session.send(FeedEnded(feed.number))
                    self._forget_soon(feed.subscription)
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
                    self.session.send(
                        MessagesLost(number, shard.node, shard.number, first, upto, "RETENTION")
                    )
                case _:
                    raise AssertionError(f"nobody to perform {effect}")

    def _open_feed(self, feed: Feed) -> None:
        subscription = self.subscriptions[feed.subscription]
        self.session.send(FeedBegun(feed.number, feed.subscription, *feed.stream))
        self.reading.begin(feed, subscription.window)

    def _forget_soon(self, number: int) -> None:
        subscription = self.subscriptions.get(number)
        if subscription is not None and subscription.group is not None:
            self._loop.call_soon(self._forget_if_over, number)

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
        if self._committing or not self._commit_due:
            return
        self._committing = True
        self._context.spawn(self.commit())

    async def commit(self) -> None:
        """Stores what changed of the places of a durable session."""
        self._commit_due = False
        self._committing = True
        try:
            for number, subscription in list(self.subscriptions.items()):
                if subscription.private is not None and subscription.reader:
                    await self._commit_one(number, subscription, subscription.private)
        finally:
            self._committing = False
        if self._commit_due:
            self._commit_due = False
            self._commit_soon()

    async def _commit_one(
        self, number: int, subscription: Subscription, private: PrivateLines
    ) -> None:
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
            self.take_over(number)

    def take_over(self, number: int | None = None) -> None:
        """Another connection has opened the session: everything here is over."""
        for known in list(self.subscriptions) if number is None else [number]:
            self.end_subscription(known, "TAKEN_OVER")
        if self.session.is_open:
            self.session.close("TAKEN_OVER", "another connection has opened this session")

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
            self._context.spawn(self._last_commit())
        self.reading.close()

    async def _last_commit(self) -> None:
        await self.commit()
