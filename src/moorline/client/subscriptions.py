"""Room: client. All subscriptions of a client: sorts what is pushed, and brings them back on another link.

    subscribe ─► known by number on a link ─ cut ─► apart ─ resume ─► known by another number
                                                      └ refused ─► ended, or tried again beside the others

A plain subscription goes on by its cursors, one of a group by the group's cursor, one of a durable session by
that of the session: docs/design/client.md.
"""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Final

from moorline.client.events import ClientEvent, EventKind, Told
from moorline.client.feed import Batch, Feed, LostMessages, TopicMessage
from moorline.client.record import check_session, check_subscription
from moorline.client.topic import OpenedSession, Subscription
from moorline.core.backoff import pause_ms
from moorline.core.frames.frame import FRAME, stored_at
from moorline.core.stream import Shard
from moorline.core.topic import shared_name
from moorline.errors import BadTopic, CallFailed, ConnectionLost, Refused, SessionTaken
from moorline.limits import CLIENT_RETURN_MS, CLIENT_RETURN_MS_MAX
from moorline.net.caller import Caller, Calls, Make
from moorline.net.tasks import Tasks
from moorline.wire.message import Answer, Failed
from moorline.wire.message import Message as WireMessage
from moorline.wire.topic import (
    ConfirmLost,
    FeedBegun,
    FeedEnded,
    FeedStopping,
    Messages,
    MessagesLost,
    OpenSession,
    RetainedMessage,
    SessionOpened,
    SubscribeTopic,
    TopicSubscribed,
    TopicSubscriptionEnded,
    UnsubscribeTopic,
)

PASSING: Final = frozenset({"UNAVAILABLE", "NOT_READY", "OUTCOME_UNKNOWN", "INTERNAL"})
"""Why a subscription cannot go on just now, and can when the node is well again."""

CROWDED: Final = frozenset({"OVER_QUOTA", "LIMIT", "FULL"})
"""The same for one that is brought back: our own, of the link before, may still have its place."""

TAKEN_OVER: Final = "TAKEN_OVER"


class Subscriptions:
    """Sorts what a node pushes by subscription and feed."""

    def __init__(self, calls: Calls, link: Caller, told: Told | None = None) -> None:
        self.calls = calls
        self.link = link
        self._told = told
        self._known: dict[int, Subscription] = {}
        """By number, on the link that there is."""
        self._live: dict[Subscription, None] = {}
        """Those that the program has, in the order in which it got them; kept from link to link."""
        self._feeds: dict[int, tuple[Feed, Subscription]] = {}
        self._wanted: Counter[str] = Counter()
        """Filters of subscriptions that somebody waits for."""
        self._unread: dict[str, Subscription] = {}
        """Subscriptions by their filters that were answered to nobody, as long as somebody waits for them."""
        self._unheard_session: tuple[str, SessionOpened] | None = None
        self._session: tuple[str, int] | None = None
        """Name and expiry of the durable session that this client has."""
        self._forgotten: set[str] = set()
        """Filters of a durable session that were closed while there was no link."""
        self._tasks = Tasks("a subscription was not brought back")

    @property
    def stays(self) -> bool:
        return self.calls is not self.link

    async def open_session(self, name: str, expiry_s: int) -> OpenedSession:
        check_session(name, expiry_s)

        def keep(answer: Answer) -> None:
            if isinstance(answer, SessionOpened):
                self._unheard_session = (name, answer)

        try:
            opened = await self.calls.call(
                lambda call: OpenSession(call, name, expiry_s), SessionOpened, unheard=keep
            )
        except SessionTaken:
            # By ourselves, in a call that was cancelled: its answer is before this one.
            if self._unheard_session is None or self._unheard_session[0] != name:
                raise
            opened, self._unheard_session = self._unheard_session[1], None
        self._session = (name, expiry_s)
        found = OpenedSession(self._of(number, text) for number, text in opened.subscriptions)
        for subscription in found:
            self._lives(subscription)
        found.left_out = dict(opened.left_out)
        return found

    async def subscribe(
        self, filter_text: str, *, window: int, start: str, qos: int, no_local: bool = False
    ) -> Subscription:
        check_subscription(filter_text, window, start, qos)
        self._wanted[filter_text] += 1
        try:
            answer = await self.calls.call(
                lambda call: SubscribeTopic(call, filter_text, window, start, qos, no_local),
                TopicSubscribed,
                unheard=self._unheard,
            )
        except BaseException:
            self._want_no_more(filter_text)
            self._take_back(filter_text)
            raise
        self._want_no_more(filter_text)
        self._unread.pop(filter_text, None)
        subscription = self._of(answer.subscription, filter_text)
        subscription.qos, subscription.window, subscription.start = qos, window, start
        subscription.is_asked = True
        for feed, owner in self._feeds.values():
            if owner is subscription:
                feed.qos = qos
        self._lives(subscription)
        if subscription.cursors is not None:
            subscription.cursors.begin(answer.places)
        return subscription

    def _lives(self, subscription: Subscription) -> None:
        self._live[subscription] = None
        if self._session is not None or _is_shared(subscription.filter):
            # The session has its places, or the group.
            subscription.cursors = None

    def _want_no_more(self, filter_text: str) -> None:
        self._wanted[filter_text] -= 1
        if not self._wanted[filter_text]:
            del self._wanted[filter_text]

    def _unheard(self, answer: Answer) -> None:
        """The caller gave up before the answer."""
        if isinstance(answer, TopicSubscribed):
            self._unread[answer.filter] = self._of(answer.subscription, "")
            self._take_back(answer.filter)

    def _take_back(self, filter_text: str) -> None:
        """A subscription that nobody reads must not stall a group.

        A filter is one subscription, however often it is asked for: others may have it, or wait for it.
        """
        if filter_text not in self._wanted:
            known = self._unread.pop(filter_text, None)
            if known is not None and not known.filter:
                known.take_back()

    # --- what the node pushes ---------------------------------------------------------------------

    def sort(self, message: WireMessage) -> bool:
        """Takes a push that is about topics; False if it is not."""
        match message:
            case Messages():
                self._messages(message)
            case FeedBegun(number, subscription):
                owner = self._of(subscription, "")
                self._feeds[number] = (Feed(self.link, message), owner)
            case FeedStopping(number):
                known = self._feeds.get(number)
                if known is not None:
                    known[1].give_back(known[0])
            case FeedEnded(number):
                known = self._feeds.pop(number, None)
                if known is not None:
                    known[0].is_open = False
                    known[1].drop(known[0])
            case RetainedMessage(subscription, frame):
                self._of(subscription, "").put(TopicMessage(None, stored_at(frame, 0), 1))
            case MessagesLost():
                self._lost_messages(message)
            case TopicSubscriptionEnded(subscription, code):
                self._ended(self._of(subscription, ""), code)
            case _:
                return False
        return True

    def _messages(self, message: Messages) -> None:
        known = self._feeds.get(message.feed)
        if known is None:
            return
        feed, owner = known
        feed.tries.update(message.tries)
        owner.put(self._placed(Batch(feed, message.frames, message.upto), owner))

    def _placed(self, batch: Batch, owner: Subscription) -> Batch:
        """With the cursor that its acknowledgements move, where the client has to know that."""
        if owner.cursors is None or not batch.frames:
            return batch
        feed = batch.feed
        first, upto = FRAME.unpack_from(batch.frames, 0)[2], batch.bounds()[1]
        cursor = feed.cursor = owner.cursors.at(feed.stream.shard, first)
        is_new = cursor.came(first, upto)
        if not feed.qos:
            cursor.done(first, upto)
        return Batch(feed, batch.frames, upto, is_new=is_new)

    def _lost_messages(self, message: MessagesLost) -> None:
        owner, lost = self._of(message.subscription, ""), LostMessages(message)
        owner.lost.append(lost)
        if owner.cursors is not None:
            shard = Shard(message.node, message.shard)
            owner.cursors.at(shard, message.first).lost(message.first, message.upto)
        self.link.send(ConfirmLost(message.feed, [(message.first, message.upto)]))
        self._tell(ClientEvent(EventKind.GAP, message.reason, what=owner.filter, count=lost.count))

    def _ended(self, subscription: Subscription, code: str) -> None:
        if code == TAKEN_OVER:
            self._session = None  # whoever has it now is not to be disturbed
        if self.stays and subscription in self._live and _passes(code, subscription):
            self._known.pop(subscription.number, None)
            self._cut_feeds(subscription)
            subscription.cut()
            self._tasks.spawn(self._try_again(subscription, self.link))
            return
        self._end(subscription, code)

    def _end(self, subscription: Subscription, code: str) -> None:
        self._live.pop(subscription, None)
        subscription.end(code)
        self._tell(ClientEvent(EventKind.ENDED, code, what=subscription.filter))

    def _tell(self, event: ClientEvent) -> None:
        if self._told is not None:
            self._told.tell(event)

    # --- from link to link ------------------------------------------------------------------------

    def lost(self) -> None:
        """For good."""
        self._tasks.cancel()
        for subscription in (*self._known.values(), *self._live):
            subscription.connection_lost()

    def cut(self, link: Caller) -> None:
        """The link is gone, and another one will follow."""
        self._cut_feeds(None)
        self._known.clear()
        self._unread.clear()
        self._unheard_session = None
        if link.end_code == TAKEN_OVER:
            self._session = None
        for subscription in self._live:
            subscription.cut()

    def _cut_feeds(self, of: Subscription | None) -> None:
        for number, (feed, owner) in list(self._feeds.items()):
            if of is None or owner is of:
                feed.is_open, feed.is_stale = False, True
                del self._feeds[number]

    async def resume(self, link: Caller) -> None:
        """Subscribes again, all together. What cannot go on ends; what cannot go on yet is tried again."""
        self.link = link
        apart = dict.fromkeys(self._live)
        if self._session is not None:
            await self._resume_session(link, apart)
        by_filter = {subscription.filter: subscription for subscription in apart}
        makes = [_again(subscription) for subscription in by_filter.values()]

        def heard(answer: Answer) -> None:
            # In its order among what is pushed: from here on this number is that subscription.
            if isinstance(answer, TopicSubscribed) and answer.filter in by_filter:
                self._adopt(by_filter[answer.filter], answer.subscription)

        answers = await link.call_all(makes, heard=heard)
        for subscription, answer in zip(by_filter.values(), answers, strict=True):
            if isinstance(answer, Failed):
                self._not_resumed(subscription, answer.code, link)

    async def _resume_session(self, link: Caller, apart: dict[Subscription, None]) -> None:
        assert self._session is not None, "no session is brought back"
        name, expiry_s = self._session
        by_filter = {subscription.filter: subscription for subscription in apart}

        def heard(answer: Answer) -> None:
            if isinstance(answer, SessionOpened):
                for number, text in answer.subscriptions:
                    if text in by_filter:
                        self._adopt(by_filter[text], number)

        try:
            opened = await link.call(
                lambda call: OpenSession(call, name, expiry_s), SessionOpened, heard=heard
            )
        except CallFailed as error:
            if error.code in PASSING:
                raise  # this link is of no use
            for subscription in list(apart):
                self._end(subscription, error.code)
            apart.clear()
            return
        for text, code in opened.left_out:
            if text in by_filter:
                self._not_resumed(by_filter[text], code, link)
                apart.pop(by_filter[text])
        had = {text: number for number, text in opened.subscriptions}
        for text in self._forgotten & had.keys():
            link.cast(partial(UnsubscribeTopic, subscription=had[text]))
        self._forgotten.clear()
        for subscription in list(apart):
            if subscription.filter not in had:
                why = "the session had expired: it begins anew"
                self._tell(ClientEvent(EventKind.GAP, why, what=subscription.filter))
            elif not subscription.is_asked:
                del apart[subscription]  # it has all that it had

    def _not_resumed(self, subscription: Subscription, code: str, link: Caller) -> None:
        subscription.is_resumed = True
        if _passes(code, subscription):
            self._tasks.spawn(self._try_again(subscription, link))
        else:
            self._end(subscription, code)

    async def _try_again(self, subscription: Subscription, link: Caller) -> None:
        """Beside the others, until it goes on, cannot, or the link is gone: then it is resumed with them."""
        tries = 0
        while True:
            wait_ms = pause_ms(
                tries, random.random(), first_ms=CLIENT_RETURN_MS, most_ms=CLIENT_RETURN_MS_MAX
            )
            await asyncio.sleep(wait_ms / 1_000)
            if link is not self.link or not link.is_open or subscription not in self._live:
                return
            tries += 1

            def heard(answer: Answer) -> None:
                if isinstance(answer, TopicSubscribed):
                    self._adopt(subscription, answer.subscription)

            try:
                await link.call(_again(subscription), TopicSubscribed, heard=heard)
            except CallFailed as error:
                if not _passes(error.code, subscription):
                    self._end(subscription, error.code)
                    return
            except (ConnectionLost, Refused):
                return
            else:
                return

    def _adopt(self, subscription: Subscription, number: int) -> None:
        """It has that number on this link. What came for the number before is its own."""
        early = self._known.get(number)
        subscription.number, subscription.is_resumed = number, True
        self._known[number] = subscription
        if early is None or early is subscription:
            return
        for feed_number, (feed, owner) in list(self._feeds.items()):
            if owner is early:
                self._feeds[feed_number] = (feed, subscription)
        for one in early.take_all():
            subscription.put(self._placed(one, subscription) if isinstance(one, Batch) else one)

    def closed(self, subscription: Subscription) -> None:
        """Nobody reads it any more."""
        if self._known.get(subscription.number) is subscription:
            del self._known[subscription.number]
        if subscription in self._live:
            del self._live[subscription]
            if self._session is not None and not self.link.is_open:
                self._forgotten.add(subscription.filter)

    def leave(self) -> None:
        """A clean end: what nobody has looked at is for others at once, and nobody is to blame."""
        for subscription in self._known.values():
            subscription.give_back()
        for feed, _ in self._feeds.values():
            feed.flush()

    def _of(self, number: int, filter_text: str) -> Subscription:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = Subscription(self, number, filter_text, 1)
        if filter_text:
            known.filter = filter_text
        return known


def _passes(code: str, subscription: Subscription) -> bool:
    return code in PASSING or (subscription.is_resumed and code in CROWDED)


def _is_shared(filter_text: str) -> bool:
    try:
        return shared_name(filter_text) is not None
    except BadTopic:
        return False


def _again(subscription: Subscription) -> Make:
    """The call that brings a subscription back."""
    cursors, start = [], subscription.start
    if subscription.cursors is not None:
        cursors = list(subscription.cursors.told())
        # Nothing is known of any shard: all that there are now are new.
        start = start if cursors else "beginning"

    def make(call: int) -> SubscribeTopic:
        one = subscription
        return SubscribeTopic(call, one.filter, one.window, start, one.qos, places=cursors)

    return make
