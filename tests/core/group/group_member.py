"""A member in the simulation of a group: the real Handler and the real Delivery, with a client at their end.

The client works on a few messages at a time, acknowledges them in any order, rejects some, and rejects poison
always. At times it reads nothing. Reads and burials take their time, and some reads fail.
"""

import random
from collections import defaultdict, deque
from typing import Any

from tests.core.group.group_world import World

from moorline.core.delivery.delivery import FAR, Delivery
from moorline.core.delivery.effects import (
    AwaitNews,
    Bury,
    Deliver,
    FeedMoved,
    ForgetNews,
    ReadBlock,
    TellLost,
)
from moorline.core.delivery.feed import Feed, FeedClosed, FeedOpened, FeedStopped
from moorline.core.delivery.open_feed import Window
from moorline.core.effects import Effect, Event, Received, Send, SetTimer, TimerFired
from moorline.core.frames.block import Block
from moorline.core.frames.frame import all_stored
from moorline.core.group.agent import SubscriptionOver, ToLeader
from moorline.core.group.events import BorrowerTimes
from moorline.core.group.leader import Leader
from moorline.core.group.message import FromLeader
from moorline.core.group.shared_subscriptions import SharedSubscriptions
from moorline.core.stream import Gap, Shard

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
        self.size = window
        self.numbers = iter(range(1, 1_000_000))
        self.shared = SharedSubscriptions(
            name, self._new_id, lambda: next(self.numbers), TIMES, progress_ms=5
        )
        self.delivery = Delivery()
        self.window = Window(SUBSCRIPTION, "wanted", window, qos=1)
        self.reads: dict[str, ReadBlock] = {}
        self.awaiting: dict[int, Shard] = {}
        self.waiting: dict[int, deque[int]] = defaultdict(deque)
        """Delivered to the client, who has not looked at it yet."""
        self.taken: dict[str, tuple[Feed, int]] = {}
        self.telling: dict[str, tuple[Feed, Gap]] = {}
        self.burying: dict[str, tuple[Feed, int]] = {}
        self.is_subscribed = False
        self.is_closing = False
        self.is_slow = False
        """The client does not read: nothing has a turn."""
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
                self.window = Window(SUBSCRIPTION, "wanted", self.size, qos=1)
                effects = self.shared.on_subscribe(SUBSCRIPTION, self.size, now_ms)
            case Leave():
                self.is_subscribed = False
                effects = self.shared.on_unsubscribe(SUBSCRIPTION, now_ms)
            case Goodbye():
                self.is_subscribed, self.is_closing = False, True
                effects = []
                for feed in list(self.shared.feeds.values()):
                    effects += self._give_back(feed)
            case Received(_, FromLeader() as message):
                effects = self.shared.received(message, now_ms)
            case TimerFired("pump"):
                effects = [
                    *self._look_around(),
                    SetTimer("pump", 100 if self.world.is_calm else 10),
                ]
            case TimerFired(name):
                effects = self._timer(name)
            case _:
                return []
        return self._performed(effects)

    def check(self) -> None:
        """Called by the simulator, after each of its steps."""
        self.shared.check()
        self.delivery.check()

    def _timer(self, name: str) -> list[Effect]:
        match name.split()[0]:
            case "read":
                return self._answer(self.reads.pop(name))
            case "ack":
                return self._finish(name)
            case "lost":
                return self._confirm(name)
            case "bury":
                return self._bury(name)
            case _:
                return self.shared.timer(name, self.now_ms)

    def _performed(self, effects: list[Effect]) -> list[Effect]:
        done, due = list[Effect](), deque(effects)
        while True:
            while due:
                due.extendleft(reversed(self._perform(due.popleft(), done)))
            if self.delivery.is_ready and not self.is_slow and not self.is_closing:
                due.extend(self.delivery.turn(self.now_ms * 1_000))
            elif self.is_closing and not self.taken and not self.telling and not self.burying:
                self.is_closing = False
                due.extend(self.shared.on_disconnect(self.now_ms, blame=False))
            else:
                self._take_up(done)
                return done

    def _perform(self, effect: Effect, done: list[Effect]) -> list[Effect]:
        match effect:
            case ToLeader(_, node, message):
                done.append(Send(node or self.home, message))
            case FeedOpened(feed):
                return self.delivery.open(feed, self.window, self._kept_from(feed))
            case FeedStopped(feed):
                return self._give_back(feed)
            case FeedClosed(feed):
                self.waiting.pop(feed.number, None)
                return self.delivery.close(feed.number)
            case FeedMoved(feed):
                return self.shared.changed(feed, self.now_ms)
            case SubscriptionOver():
                self.is_subscribed = False
            case ReadBlock(feed, _, offset):
                if self.world.is_calm or self.chance.random() < 0.7:
                    return self._answer(effect)  # from memory
                self._later(f"read {feed} {offset}", self.reads, effect, (1, 2, 5), done)
            case AwaitNews(feed, stream):
                assert feed not in self.awaiting, "D3: it waits already"
                self.awaiting[feed] = stream.shard
            case ForgetNews(feed):
                del self.awaiting[feed]
            case Deliver():
                self._receive(effect)
            case TellLost(_, feed, _, gap):
                one = self.shared.feeds[feed]
                name = f"lost {feed} {gap.first} {gap.upto}"
                self._later(name, self.telling, (one, gap), (1, 2, 3, 20), done)
            case Bury(feed, offset):
                self.world.beyond.add((self.shared.feeds[feed].stream.shard, offset))
                dead = (self.shared.feeds[feed], offset)
                self._later(f"bury {feed} {offset}", self.burying, dead, (1, 2, 10), done)
            case _:
                done.append(effect)
        return []

    def _later(
        self,
        name: str,
        kept: dict[str, Any],
        what: object,
        after_ms: tuple[int, ...],
        done: list[Effect],
    ) -> None:
        kept[name] = what
        done.append(SetTimer(name, self.chance.choice(after_ms)))

    # --- streams ----------------------------------------------------------------------------------

    def _kept_from(self, feed: Feed) -> int:
        return self.world.extents(feed.stream.shard)[0].first

    def _look_around(self) -> list[Effect]:
        """Shards have moved, retention has taken something, the client reads again or no more."""
        self.is_slow = not self.world.is_calm and self.chance.random() < 0.1
        effects: list[Effect] = []
        for number, shard in list(self.awaiting.items()):
            if self.world.ends[shard] > self.delivery.feeds[number].feed.next:
                del self.awaiting[number]
                self.delivery.moved(number)
        for number, one in list(self.delivery.feeds.items()):
            if not self.is_closing:
                effects += self.delivery.kept_from(number, self._kept_from(one.feed))
        return effects

    def _answer(self, read: ReadBlock) -> list[Effect]:
        if self.chance.random() < 0.05:
            self.delivery.unread(read.feed)
            return []
        found = self.world.read(read.stream, read.offset, self.chance.randint(1, 12))
        end = self.world.ends[read.stream.shard] if isinstance(found, Block) else FAR
        return self.delivery.found(read.feed, found, self.now_ms * 1_000, end)

    # --- the client -------------------------------------------------------------------------------

    def _receive(self, delivered: Deliver) -> None:
        feed = self.shared.feeds[delivered.feed]
        tries = dict(delivered.tries)
        for message in all_stored(delivered.frames):
            number = message.offset
            assert message.topic == "wanted", f"{feed.stream} at {number} is not for anybody"
            assert tries.get(number, 1) <= feed.deliveries_max, "it should be buried"
            if self.world.mode is Leader and self.world.checks_order:
                self._check_order(feed.stream.shard, number)
            self.waiting[delivered.feed].append(number)

    def _check_order(self, shard: Shard, number: int) -> None:
        seen = self.world.first_seen.get(shard, -1)
        if number > seen:
            skipped = [
                between
                for between in range(max(seen + 1, self.world.dropped[shard]), number)
                if self.world.matches((shard, between))
                and (shard, between) not in self.world.beyond
            ]
            assert not skipped, f"I7: {shard} was delivered up to {seen} and then at {number}"
            self.world.first_seen[shard] = number

    def _take_up(self, done: list[Effect]) -> None:
        """The client begins with some of what it has."""
        for number, waiting in self.waiting.items():
            while waiting and len(self.taken) < TAKEN_MAX and not self.is_closing:
                offset = waiting.popleft()
                work = (self.shared.feeds[number], offset)
                self._later(f"ack {number} {offset}", self.taken, work, (1, 2, 3, 20, 60), done)

    def _give_back(self, feed: Feed) -> list[Effect]:
        waiting = self.waiting.pop(feed.number, ())
        return self.delivery.give_back(feed.number, [(offset, offset + 1) for offset in waiting])

    def _finish(self, name: str) -> list[Effect]:
        feed, number = self.taken.pop(name)
        offset = (feed.stream.shard, number)
        if self.world.is_poison(offset) or self.chance.random() < self.world.rejects:
            if feed.number in self.delivery.feeds and number in feed.out:
                self.world.rejected[offset] += 1
            return self.delivery.reject(feed.number, number)
        self.world.process(offset)
        return self.delivery.ack(feed.number, [(number, number + 1)])

    def _confirm(self, name: str) -> list[Effect]:
        feed, gap = self.telling.pop(name)
        if feed.number not in self.shared.feeds:
            return []  # whoever has the stream now is told
        for number in range(gap.first, gap.upto):
            self.world.tell_lost((feed.stream.shard, number))
        assert (gap.first, gap.upto) in feed.telling
        return self.delivery.confirm_lost(feed.number, [(gap.first, gap.upto)])

    def _bury(self, name: str) -> list[Effect]:
        feed, offset = self.burying.pop(name)
        if feed.number not in self.shared.feeds:
            return []  # the stream is another's by now, who finds the same
        if offset < self.world.dropped[feed.stream.shard]:
            return self.delivery.not_buried(feed.number, offset, "retention")
        self.world.bury((feed.stream.shard, offset))
        return self.delivery.buried(feed.number, offset)
