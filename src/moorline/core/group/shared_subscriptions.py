"""Room: core/group. The session's Shared Subscription Handler: it knows feeds, and nothing of Leaders.

What the Agent gets from Leaders becomes feeds that the session reads; what becomes of their messages
goes back to the Agent as progress, together for all that happened within a few milliseconds.

Invariants, looked at by `check`:

    S1  each lease of each Borrower has exactly one feed, known by its number and by its lease
    S2  a feed that changed is reported, or the timer that reports it is set
    S3  a lease that was asked for has a feed that is stopped: nothing more is delivered of it
    S4  no feed that was stopped waits to be looked at: a drained one is reported in the same step
"""

from collections.abc import Callable, Iterable

from moorline.core.delivery.feed import Feed, FeedClosed, FeedOpened, FeedStopped
from moorline.core.effects import Effect, SetTimer
from moorline.core.group.agent import Agent, SubscriptionOver
from moorline.core.group.events import BorrowerTimes, Install, Remove, Retire, StreamProgress
from moorline.core.group.held_leases import LeaseState
from moorline.core.group.message import FromLeader
from moorline.core.ranges import Range

PROGRESS_TIMER = "progress"


class SharedSubscriptions:
    """The shared subscriptions of one session."""

    def __init__(
        self,
        member: str,
        new_id: Callable[[], str],
        new_feed: Callable[[], int],
        times: BorrowerTimes,
        *,
        progress_ms: int,
    ) -> None:
        self.feeds: dict[int, Feed] = {}
        self._agent = Agent(member, new_id, times)
        self._new_feed = new_feed
        self._progress_ms = progress_ms
        self._by_lease: dict[tuple[str, int], Feed] = {}
        self._leases: dict[int, tuple[str, int]] = {}
        self._changed: dict[int, None] = {}
        # One timer for all feeds: a session with a hundred streams sends its reports together.
        self._timer_set = False
        # What the Agent heard at once of a feed: how many went back, that it is drained, and losses.
        self._told: dict[int, tuple[int, bool, int, bool]] = {}
        self._retired: list[Feed] = []

    # --- the session ------------------------------------------------------------------------------

    def on_subscribe(self, subscription: int, window: int, now_ms: int) -> list[Effect]:
        return self._passed(self._agent.subscribe(subscription, window, now_ms))

    def on_unsubscribe(self, subscription: int, now_ms: int) -> list[Effect]:
        effects = self._passed(self._agent.unsubscribe(subscription, now_ms))
        return effects + self._report_drained(now_ms)

    def on_denied(self, subscription: int, now_ms: int) -> list[Effect]:
        """It may not go on: nothing more of it is delivered, and nothing is waited for."""
        effects: list[Effect] = []
        for feed in [one for one in self.feeds.values() if one.subscription == subscription]:
            effects += self._report(feed, now_ms)
        return effects + self._passed(self._agent.leave(subscription, now_ms))

    def on_disconnect(self, now_ms: int, *, blame: bool) -> list[Effect]:
        """The session goes; with `blame` its member died, and may have died of a message."""
        effects: list[Effect] = []
        # Reported before the goodbye, which says what the last reports said.
        for feed in list(self.feeds.values()):
            if blame:
                feed.blame()
            effects += self._report(feed, now_ms)
        return effects + self._passed(self._agent.disconnect(now_ms))

    def has_members(self, subscription: int) -> bool:
        """Whether any Borrower of a subscription is left, one that is leaving included."""
        return self._agent.has_members(subscription)

    def is_connected(self, subscription: int) -> bool:
        return self._agent.is_connected(subscription)

    def changed(self, feed: Feed, now_ms: int) -> list[Effect]:
        """Something of this feed was delivered, acknowledged or given back."""
        # Its lease is over: what its client still says of it is nobody's any more.
        if feed.number not in self._leases:
            return []
        # Somebody waits for a word that something came back or is lost, or that a lock is done with.
        told = self._told.get(feed.number, (0, False, 0, False))
        if _urgent(feed) != told or feed.is_done:
            return self._report(feed, now_ms)
        self._changed[feed.number] = None
        if self._timer_set:
            return []
        self._timer_set = True
        return [SetTimer(PROGRESS_TIMER, self._progress_ms)]

    def timer(self, name: str, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        # Also before the last word of a Borrower that has waited long enough.
        for feed in [self.feeds[number] for number in self._changed]:
            effects += self._report(feed, now_ms)
        if name == PROGRESS_TIMER:
            self._timer_set = False
            return effects
        return effects + self._passed(self._agent.timer(name, now_ms))

    # --- the Leaders ------------------------------------------------------------------------------

    def received(self, message: FromLeader, now_ms: int) -> list[Effect]:
        effects = self._passed(self._agent.received(message, now_ms))
        return effects + self._report_drained(now_ms)

    def node_lost(self, node: str, now_ms: int) -> list[Effect]:
        return self._passed(self._agent.node_lost(node, now_ms))

    # --- inside -----------------------------------------------------------------------------------

    def _passed(self, effects: Iterable[Effect]) -> list[Effect]:
        """The Agent's effects, with those about leases turned into feeds."""
        passed: list[Effect] = []
        for effect in effects:
            match effect:
                case Install():
                    passed.append(self._open(effect))
                case Retire(borrower, lease):
                    feed = self._by_lease[borrower, lease]
                    feed.stop()
                    # Not reported here: whoever performs `FeedStopped` gives back what its client has not
                    # looked at, and the Agent is in the middle of a step.
                    self._retired.append(feed)
                    passed.append(FeedStopped(feed))
                case Remove(borrower, lease):
                    feed = self._by_lease.pop((borrower, lease))
                    del self._leases[feed.number]
                    del self.feeds[feed.number]
                    self._changed.pop(feed.number, None)
                    self._told.pop(feed.number, None)
                    # Also of one that was never asked for: a read that is under way must find it stopped.
                    feed.stopped = True
                    passed.append(FeedClosed(feed))
                case SubscriptionOver() | _:
                    passed.append(effect)
        return passed

    def _open(self, install: Install) -> FeedOpened:
        subscription = self._agent.members[install.borrower].subscription
        feed = Feed(
            self._new_feed(),
            subscription,
            install.stream,
            install.cursor,
            ranges=install.ranges,
            deliveries_max=install.deliveries_max,
        )
        # Under a number of its own, and not that of the lease: two Borrowers of one session may have leases
        # of the same number.
        self.feeds[feed.number] = feed
        self._leases[feed.number] = (install.borrower, install.lease)
        self._by_lease[install.borrower, install.lease] = feed
        return FeedOpened(feed)

    def _report_drained(self, now_ms: int) -> list[Effect]:
        """A feed that was stopped with nothing out is drained at once."""
        effects: list[Effect] = []
        retired, self._retired = self._retired, []
        for feed in retired:
            if feed.is_drained:
                effects += self._report(feed, now_ms)
        return effects

    def _report(self, feed: Feed, now_ms: int) -> list[Effect]:
        # Out first: what follows may close the feed.
        self._changed.pop(feed.number, None)
        known = self._leases.get(feed.number)
        if known is None:
            return []
        borrower, lease = known
        returned: tuple[Range, ...] = tuple(feed.returned)
        # Noted before the Agent hears it: what it answers may come back here.
        self._told[feed.number] = _urgent(feed)
        progress = StreamProgress(
            lease,
            feed.progress.cursor(),
            feed.next,
            feed.is_drained,
            returned,
            tuple(feed.lost),
            bool(feed.telling),
        )
        return self._passed(self._agent.progress(borrower, progress, now_ms))

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants, and those of the Agent; a feed is looked at by whoever delivers it."""
        self._agent.check()
        held = {
            (name, number): lease
            for name, member in self._agent.members.items()
            for number, lease in member.borrower.leases.items()
        }
        assert held.keys() == self._by_lease.keys(), f"S1: {held.keys() ^ self._by_lease.keys()}"
        assert self.feeds.keys() == self._leases.keys(), "S1: a feed without a lease"
        for number, key in self._leases.items():
            feed = self.feeds[number]
            assert self._by_lease[key] is feed, f"S1: {key} is not feed {number}"
            is_asked = held[key].state is LeaseState.REVOKING
            assert feed.stopped or not is_asked, f"S3: feed {number} goes on"
        for noted in (self._changed, self._told):
            assert noted.keys() <= self.feeds.keys(), f"S2: {list(noted)} are not all feeds"
        assert self._timer_set or not self._changed, f"S2: nobody reports {list(self._changed)}"
        assert not self._retired, "S4: a feed was stopped and not looked at"


# What the Leader must hear at once, because another member may wait for it: the rest can wait for the timer.
def _urgent(feed: Feed) -> tuple[int, bool, int, bool]:
    return len(feed.returned), feed.is_drained, feed.lost_messages, bool(feed.telling)
