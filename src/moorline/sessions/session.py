"""Room: sessions. One client's session: its subscriptions, private and shared, over one connection.

The shell around the session's Shared Subscription Handler and its private subscriptions: their effects become
messages to Leaders, timers, and pushes to the client.
"""

import asyncio
import logging
import secrets
from collections.abc import Generator, Iterable
from itertools import count

from moorline.catalog.sessions import SessionRow
from moorline.core.access.quota import Quota
from moorline.core.delivery.effects import Bury, FeedMoved
from moorline.core.delivery.feed import FeedClosed, FeedOpened, FeedStopped
from moorline.core.delivery.open_feed import FilterMatcher, Window
from moorline.core.delivery.private_subscription import PrivateSubscription
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Event, TimerFired
from moorline.core.group.agent import SubscriptionOver, ToLeader
from moorline.core.group.events import BorrowerTimes
from moorline.core.group.message import (
    Disconnect,
    LeaderMessage,
    LeaderWanted,
)
from moorline.core.group.shared_subscriptions import SharedSubscriptions
from moorline.core.stream import Shard
from moorline.core.topic import SharedName
from moorline.errors import Denied, MoorlineError, RightsUnknown
from moorline.limits import PROGRESS_MS
from moorline.net.clock import monotonic_ms
from moorline.net.interpreter import Interpreter
from moorline.net.session_rights import SessionAllowance
from moorline.sessions.connected import Connected
from moorline.sessions.context import Context
from moorline.sessions.dead_letters import bury
from moorline.sessions.delivery_host import DeliveryHost
from moorline.sessions.outlet import Outlet
from moorline.sessions.session_commits import SessionCommits
from moorline.sessions.subscription import Subscription
from moorline.topics.directory import ShardExtents
from moorline.topics.filtered_news import Sleeper
from moorline.wire.group import ForLeader

log = logging.getLogger("moorline.groups")


class TopicSession:
    """The topics' side of one connection."""

    is_elsewhere = False

    def __init__(self, session: Connected, context: Context, outlet: Outlet) -> None:
        self.session = session
        self.row: SessionRow | None = None
        """The durable session, if it is one."""
        self.ends_with_connection = False
        """The client asked for a session that nobody comes back to."""
        self.subscriptions: dict[int, Subscription] = {}
        self.is_open = True
        self._context = context
        self._places = 0
        """Taken of the quota of subscriptions."""
        self._allowance: SessionAllowance | None = None
        """That they were taken from: a login that is over has none any more."""
        self._numbers = count(1)
        self._feeds = count(1)
        self._loop = asyncio.get_running_loop()
        self._shared_made: SharedSubscriptions | None = None
        self._outlet = outlet
        self.delivery = DeliveryHost(self._outlet, context.directory)
        self._interpreter = Interpreter(
            {
                **self.delivery.performers(),
                FeedOpened: self._open_feed,
                FeedStopped: self._stop_feed,
                FeedClosed: self._close_feed,
                FeedMoved: self._feed_moved,
                Bury: self._bury,
                ToLeader: self._to_leader,
                SubscriptionOver: self._subscription_over,
            },
            self._heard,
            self._failed,
        )
        self._perform = self.delivery.perform = self._interpreter.perform
        self._commits = SessionCommits(self, context)
        session.at_end(self._ended)

    @property
    def name(self) -> str:
        """What operators see of it."""
        if self.row is not None:
            return self.row.name
        return f"{self._context.links.node}/{self.session.name.replace(' ', '-')}"

    @property
    def _shared(self) -> SharedSubscriptions:
        if self._shared_made is None:
            settings = self._context.settings
            times = BorrowerTimes(
                find_leader_ms=max(20, settings.ping_ms // 4),
                ping_ms=settings.ping_ms,
                ping_timeout_ms=max(settings.ping_ms, settings.member_timeout_ms // 2),
                unsubscribe_ms=min(5_000, settings.revoke_ms),
            )
            self._shared_made = SharedSubscriptions(
                self.name,
                lambda: secrets.token_hex(8),
                lambda: next(self._feeds),
                times,
                progress_ms=PROGRESS_MS,
            )
        return self._shared_made

    # --- subscriptions ----------------------------------------------------------------------------

    def subscribe_shared(
        self,
        filter_text: str,
        group: SharedName,
        reader: int,
        size: int,
        qos: int,
        *,
        hold: bool = False,
        owner: str = "",
    ) -> int:
        """Takes part in a group; a second time changes only the window and the qos."""
        for number, known in self.subscriptions.items():
            if known.reader == reader and known.group is not None and not known.is_leaving:
                self.delivery.change(known.window, size, qos)
                return number
        self._take_place()
        number = next(self._numbers)
        window = Window(number, group.filter, size, qos, is_held=hold)
        self.subscriptions[number] = Subscription(filter_text, window, group, reader, owner)
        self._perform(self._shared.on_subscribe(number, size, monotonic_ms()))
        return number

    def subscribe_private(
        self,
        filter_text: str,
        reader: int,
        cursors: Iterable[tuple[Shard, Cursor]],
        size: int,
        qos: int,
        matcher: FilterMatcher | None = None,
        sleeper: Sleeper | None = None,
    ) -> int:
        """With a `matcher` it reads by that, which is judged by whoever has it, and not by one filter. With a
        `sleeper` of the same filters it sleeps until something comes for it."""
        self._take_place()
        number = next(self._numbers)
        self.delivery.plain.add(number)
        if sleeper is not None:
            self.delivery.sleepers[number] = sleeper
        window = Window(number, filter_text, size, qos, matcher=matcher)
        subscription = Subscription(filter_text, window, None, reader)
        subscription.is_judged_elsewhere = matcher is not None
        subscription.private = PrivateSubscription(number, cursors, lambda: next(self._feeds))
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

    def see(self, number: int, shard_extents: ShardExtents, starts: dict[Shard, int]) -> None:
        """Tells a private subscription of streams; `starts` for those that are new to it."""
        subscription = self.subscriptions.get(number)
        if subscription is None or subscription.private is None:
            return
        for shard, extents in shard_extents.items():
            if subscription.private.knows(shard) or shard in starts:
                start = starts.get(shard, 0)
                self._perform(subscription.private.seen(shard, extents, start))
        self._commits.soon()

    def unsubscribe(self, number: int) -> Subscription | None:
        subscription = self.subscriptions.get(number)
        if subscription is None:
            return None
        if subscription.private is not None:
            self._perform(subscription.private.close())
            self._drop(number)
        else:
            # Its feeds are drained first: it stays known until the last of them is closed.
            subscription.is_leaving = True
            self._perform(self._shared.on_unsubscribe(number, monotonic_ms()))
            self._forget_if_over(number)
        return subscription

    def judge_again(self) -> Generator[None, None, None]:
        """Ends what its principal may not read any more; a step for each subscription."""
        for number, subscription in list(self.subscriptions.items()):
            if self.subscriptions.get(number) is not subscription or not self.is_open:
                continue  # it went meanwhile
            if not subscription.may_go_on(self.session.rights):
                self._deny(number, subscription)
            yield

    def _deny(self, number: int, subscription: Subscription) -> None:
        """A durable session keeps its place: whether it may go on is asked when it is opened again."""
        log.info(
            "a subscription is not granted any more",
            extra={"member": self.name, "filter": subscription.filter},
        )
        if subscription.private is not None:
            self._perform(subscription.private.close())
        else:
            self._perform(self._shared.on_denied(number, monotonic_ms()))
        is_known = self.session.rights.is_known
        self.end_subscription(number, Denied.code if is_known else RightsUnknown.code)

    def end_subscription(self, number: int, code: str) -> None:
        """Somebody else ended it: the client is told."""
        subscription = self._drop(number)
        if subscription is None:
            return
        if self._outlet.is_open:
            self._outlet.end_subscription(number, code)
        if code == "DELETED" and self.row is not None:
            # A session that came back with it would make the group anew.
            self._context.tasks.spawn(self._forget_for_good(self.row, subscription.filter))

    async def _forget_for_good(self, row: SessionRow, filter_text: str) -> None:
        try:
            await self._context.sessions.unsubscribe(row.name, row.epoch, filter_text)
        except (MoorlineError, OSError) as error:
            log.warning("a subscription was not removed", extra={"error": str(error)})

    def _forget_if_over(self, number: int) -> None:
        if not self._shared.has_members(number):
            self._drop(number)

    def _drop(self, number: int) -> Subscription | None:
        subscription = self.subscriptions.pop(number, None)
        self.delivery.sleepers.pop(number, None)
        self.delivery.plain.discard(number)
        if subscription is not None:
            self._give_back(1)
            self._context.borrowers.pop(subscription.borrower, None)
        return subscription

    def _take_place(self) -> None:
        """Of the quota of its principal. Given back with each subscription, and the rest with the session."""
        allowance = self.session.allowance
        if allowance is not None:
            allowance.take((Quota.SUBSCRIPTIONS, 1))
            self._allowance = allowance
            self._places += 1

    def check_place(self) -> None:
        """Before the catalog hears of a subscription that could not begin."""
        self._take_place()
        self._give_back(1)

    def _give_back(self, places: int) -> None:
        if self._allowance is not None and self._places:
            self._allowance.give_back((Quota.SUBSCRIPTIONS, places))
            self._places -= places

    # --- Leaders ----------------------------------------------------------------------------------

    def from_leader(self, message: LeaderMessage) -> None:
        if self.is_open:
            self._perform(self._shared.received(message, monotonic_ms()))

    def node_lost(self, node: str) -> None:
        if self.is_open and self._shared_made is not None:
            self._perform(self._shared_made.node_lost(node, monotonic_ms()))

    def _to_leader(self, effect: ToLeader) -> None:
        subscription = self.subscriptions.get(effect.subscription)
        if subscription is None:
            return
        context, reader, message = self._context, subscription.reader, effect.message
        if isinstance(message, LeaderWanted):
            # The Borrower that this one may stand for is over: nobody is to hear for it any more.
            context.borrowers.pop(subscription.borrower, None)
            subscription.borrower = message.borrower
            context.borrowers[message.borrower] = self
        elif isinstance(message, Disconnect):
            context.borrowers.pop(message.borrower, None)
        if effect.node in ("", context.links.node):
            context.leaders.hear(reader, message, self, passed_on=False)
        else:
            context.links.send(effect.node, ForLeader(reader, message))

    # --- effects ----------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        """Timers of shared subscriptions: nothing else answers later."""
        assert isinstance(event, TimerFired)
        if self.is_open:
            self._perform(self._shared.timer(event.name, monotonic_ms()))
            if event.name.endswith("unsubscribe"):
                for number in list(self.subscriptions):
                    if self.subscriptions[number].group is not None:
                        self._forget_if_over(number)

    def _open_feed(self, opened: FeedOpened) -> None:
        feed = opened.feed
        window = self.subscriptions[feed.subscription].window
        self._outlet.begin_feed(feed, window.qos)
        self.delivery.open(feed, window)

    def _stop_feed(self, stopped: FeedStopped) -> None:
        if self._outlet.is_open:
            self._outlet.stop_feed(stopped.feed)

    def _close_feed(self, closed: FeedClosed) -> None:
        feed = closed.feed
        self.delivery.end(feed)
        if self._outlet.is_open:
            self._outlet.end_feed(feed)
        subscription = self.subscriptions.get(feed.subscription)
        if subscription is not None and subscription.group is not None:
            self._loop.call_soon(self._forget_if_over, feed.subscription)

    def _feed_moved(self, moved: FeedMoved) -> None:
        feed = moved.feed
        subscription = self.subscriptions.get(feed.subscription)
        if subscription is None:
            return
        if subscription.private is not None:
            self._perform(subscription.private.changed(feed))
            self._commits.soon()
        else:
            self._perform(self._shared.changed(feed, monotonic_ms()))

    def _bury(self, dead: Bury) -> None:
        one = self.delivery.machine.feeds.get(dead.feed)
        if one is None:
            return  # the stream is another's by now, who finds the same
        subscription = self.subscriptions.get(one.feed.subscription)
        if subscription is not None and subscription.group is not None:
            self._context.tasks.spawn(
                bury(self._context.directory, self.delivery, one, dead.offset, subscription.group)
            )

    def _subscription_over(self, over: SubscriptionOver) -> None:
        self.end_subscription(over.subscription, over.reason)

    def _failed(self, error: Exception) -> None:
        raise AssertionError("no effect of a session is awaited") from error

    # --- one connection after another -------------------------------------------------------------

    async def commit(self) -> None:
        """Stores what changed of the places of a durable session."""
        await self._commits.commit()

    async def settled(self) -> None:
        """Behind its end: returns when its last places are stored, or it is removed."""
        await self._commits.settled.wait()

    def take_over(self) -> None:
        """Another connection has opened the session: everything here is over."""
        if not self.session.is_open:
            return
        for number in self.subscriptions:
            self._outlet.end_subscription(number, "TAKEN_OVER")
        # The subscriptions stay known: their Borrowers say their last word when the connection is over.
        self.session.close("TAKEN_OVER", "another connection has opened this session")

    async def hand_over(self) -> None:
        """The same, and returns when what the client has acknowledged until now is stored."""
        self.take_over()
        await self.commit()
        await self._commits.settled.wait()

    # --- the end ----------------------------------------------------------------------------------

    def _ended(self) -> None:
        """The connection is over; whoever says DONE leaves in peace, others may have died of a message."""
        self._give_back(self._places)
        if not self.is_open:
            return
        if self.row is not None:
            self.delivery.pass_slept()
        blame = self.session.end_code not in ("DONE", "STOPPING", "TAKEN_OVER")
        self.delivery.machine.release()
        if self._shared_made is not None:
            self._perform(self._shared_made.on_disconnect(monotonic_ms(), blame=blame))
        self.is_open = False
        self._interpreter.close()
        self._context.forget(self)
        if self.row is not None:
            self._commits.settle(self.row)
        self.delivery.close()
