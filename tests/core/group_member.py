"""A member in the simulation of a group: the real Handler, with a client that works on a few messages.

It acknowledges them in any order, rejects some, and rejects poison always.
"""

import random
from collections import defaultdict, deque

from tests.core.group_world import World

from moorline.core.agent import SubscriptionOver, ToLeader
from moorline.core.borrower import BorrowerTimes
from moorline.core.effects import Effect, Event, Received, Send, SetTimer, TimerFired
from moorline.core.feed import Feed
from moorline.core.group_message import FromLeader
from moorline.core.handler import FeedClosed, FeedOpened, FeedStopped, Handler
from moorline.core.leader import Leader
from moorline.core.stream import RETENTION, Gap, Shard

SUBSCRIPTION = 1
TAKEN_MAX = 4
"""Messages that a member works on at once."""

TIMES = BorrowerTimes(find_leader_ms=60, ping_ms=100, ping_timeout_ms=300, unsubscribe_ms=400)


class Join(Event, frozen=True):
    pass


class Leave(Event, frozen=True):
    """It unsubscribes."""


class Goodbye(Event, frozen=True):
    """A clean end of the session: it finishes what it is at, and goes."""


class MemberNode:
    """A session and its client."""

    def __init__(
        self, name: str, home: str, world: World, chance: random.Random, window: int = 16
    ) -> None:
        self.name, self.home, self.world, self.chance = name, home, world, chance
        self.window = window
        self.numbers = iter(range(1, 1_000_000))
        self.handler = Handler(name, self._new_id, lambda: next(self.numbers), TIMES, progress_ms=5)
        self.waiting: dict[int, deque[int]] = defaultdict(deque)
        self.taken: dict[str, tuple[Feed, int]] = {}
        self.telling: dict[str, tuple[Feed, Gap]] = {}
        self.is_subscribed = False
        self.is_closing = False
        self.now_ms = 0

    def _new_id(self) -> str:
        name = f"{self.name}.{self.chance.getrandbits(48):012x}"
        assert name not in self.world.ids, "I11: an id is used once"
        self.world.ids.add(name)
        return name

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        self.world.touched.add(self.name)
        match event:
            case Join():
                if self.is_subscribed or self.is_closing:
                    return []
                self.is_subscribed = True
                effects = self.handler.on_subscribe(SUBSCRIPTION, self.window, now_ms)
            case Leave():
                self.is_subscribed = False
                effects = self.handler.on_unsubscribe(SUBSCRIPTION, now_ms)
            case Goodbye():
                self.is_subscribed, self.is_closing = False, True
                effects = []
                for feed in list(self.handler.feeds.values()):
                    effects += self._give_back(feed)
            case Received(_, FromLeader() as message):
                effects = self.handler.received(message, now_ms)
            case TimerFired("pump"):
                effects = [SetTimer("pump", 100 if self.world.is_calm else 10)]
            case TimerFired(name) if name.startswith("ack "):
                effects = self._finish(name)
            case TimerFired(name) if name.startswith("lost "):
                effects = self._tell(name)
            case TimerFired(name):
                effects = self.handler.timer(name, now_ms)
            case _:
                return []
        return self._performed(effects)

    def _performed(self, effects: list[Effect]) -> list[Effect]:
        done, due, is_pumped = list[Effect](), deque(effects), False
        while due or not is_pumped or (self.is_closing and not self.taken and not self.telling):
            if not due and not is_pumped:
                is_pumped = True
                due.extend(self._pump())
                continue
            if not due:
                self.is_closing = False
                due.extend(self.handler.on_disconnect(self.now_ms, blame=False))
                continue
            effect = due.popleft()
            match effect:
                case ToLeader(_, node, message):
                    done.append(Send(node or self.home, message))
                case FeedStopped(feed):
                    due.extendleft(reversed(self._give_back(feed)))
                case FeedClosed(feed):
                    self.waiting.pop(feed.number, None)
                case FeedOpened():
                    pass
                case SubscriptionOver():
                    self.is_subscribed = False
                case _:
                    done.append(effect)
        return done

    def _give_back(self, feed: Feed) -> list[Effect]:
        for offset in self.waiting.pop(feed.number, ()):
            feed.give_back(offset, offset + 1)
        return self.handler.changed(feed, self.now_ms)

    def _pump(self) -> list[Effect]:
        effects: list[Effect] = []
        if self.is_closing:
            return effects
        for feed in list(self.handler.feeds.values()):
            self._look_for_gone(feed, effects)
        room = self.window - sum(len(feed.out) for feed in self.handler.feeds.values())
        for feed in list(self.handler.feeds.values()):
            if room > 0 and not feed.stopped:
                room -= self._read(feed, room, effects)
        for number, waiting in self.waiting.items():
            while waiting and len(self.taken) < TAKEN_MAX:
                offset = waiting.popleft()
                name = f"ack {number} {offset}"
                self.taken[name] = (self.handler.feeds[number], offset)
                effects.append(SetTimer(name, self.chance.choice((1, 2, 3, 20, 60))))
        return effects

    def _look_for_gone(self, feed: Feed, effects: list[Effect]) -> None:
        """The client hears of a loss a little later, and confirms it."""
        gone = self.world.extents(feed.stream.line)[0].first
        for gap, _ in feed.lose(0, gone, RETENTION) if gone > feed.progress.low else ():
            name = f"lost {feed.number} {gap.first} {gap.upto}"
            self.telling[name] = (feed, gap)
            effects.append(SetTimer(name, self.chance.choice((1, 2, 3, 20))))
            effects += self.handler.changed(feed, self.now_ms)

    def _tell(self, name: str) -> list[Effect]:
        feed, gap = self.telling.pop(name)
        if feed.number not in self.handler.feeds:
            return []  # whoever has the stream now is told
        for number in range(gap.first, gap.upto):
            self.world.tell_lost((feed.stream.line, number))
        assert feed.confirm(gap.first, gap.upto)
        return self.handler.changed(feed, self.now_ms)

    def _read(self, feed: Feed, room: int, effects: list[Effect]) -> int:
        world, shard = self.world, feed.stream.line
        extent = next((e for e in world.extents(shard) if e.stream == feed.stream), None)
        wanted = feed.wanted(extent.end) if extent is not None else None
        if wanted is None:
            return 0
        first, upto = wanted[0], min(wanted[1], wanted[0] + room)
        offsets = []
        for number in range(first, upto):
            if world.matches((shard, number)):
                if world.mode is Leader and world.checks_order:
                    self._check_order(shard, number)
                if feed.is_beyond(number):
                    world.bury((shard, number))
                else:
                    offsets.append(number)
        feed.looked_at(first, upto, [(number, number + 1) for number in offsets])
        self.waiting[feed.number].extend(offsets)
        effects += self.handler.changed(feed, self.now_ms)
        return len(offsets)

    def _check_order(self, shard: Shard, number: int) -> None:
        seen = self.world.first_seen.get(shard, -1)
        if number > seen:
            skipped = [
                between
                for between in range(max(seen + 1, self.world.dropped[shard]), number)
                if self.world.matches((shard, between))
            ]
            assert not skipped, f"I7: {shard} was delivered up to {seen} and then at {number}"
            self.world.first_seen[shard] = number

    def _finish(self, name: str) -> list[Effect]:
        feed, number = self.taken.pop(name)
        offset = (feed.stream.line, number)
        if self.world.is_poison(offset) or self.chance.random() < self.world.rejects:
            is_last = feed.reject(number)
            if is_last is not None:
                self.world.rejected[offset] += 1
            if is_last:
                self.world.bury(offset)
                feed.ack(number, number + 1)
        else:
            self.world.process(offset)
            feed.ack(number, number + 1)
        return self.handler.changed(feed, self.now_ms)
