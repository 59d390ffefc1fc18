"""A private subscription: one reader of all shards, and whatever retention takes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.feed import Feed, FeedClosed, FeedOpened
from moorline.core.delivery.private_subscription import PrivateSubscription
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.stream import RETENTION, Extent, Gap, Shard, Stream

SHARD = Shard("node", 0)


def generation(number: int, first: int, end: int, *, sealed: bool) -> Extent:
    return Extent(Stream("node", 0, number), first, end, sealed)


def subscribed(cursor: Cursor) -> PrivateSubscription:
    numbers = iter(range(1, 1_000))
    return PrivateSubscription(1, [(SHARD, cursor)], lambda: next(numbers))


def feed_of(effects: list[Effect]) -> Feed:
    (opened,) = [effect for effect in effects if isinstance(effect, FeedOpened)]
    return opened.feed


def test_generations_are_read_one_after_the_other() -> None:
    one = subscribed(Cursor(0))
    extents = (generation(0, 0, 3, sealed=True), generation(1, 3, 9, sealed=False))
    feed = feed_of(one.seen(SHARD, extents, 0))
    assert feed.stream == Stream("node", 0, 0)
    feed.looked_at(0, 3, [(0, 3)])
    feed.ack(0, 2)
    assert one.changed(feed) == [], "the third is out"
    feed.ack(2, 3)
    effects = one.changed(feed)
    assert effects[0] == FeedClosed(feed)
    following = feed_of(effects)
    assert (following.stream, following.next) == (Stream("node", 0, 1), 3)
    one.check()


def test_a_cursor_is_due_once_and_again_when_it_could_not_be_stored() -> None:
    one = subscribed(Cursor(2))
    feed = feed_of(one.seen(SHARD, (generation(0, 0, 9, sealed=False),), 0))
    feed.looked_at(2, 4, [(2, 4)])
    feed.ack(2, 4)
    one.changed(feed)
    one.changed(feed)
    assert one.take_dirty() == [(SHARD, Cursor(4))]
    assert one.take_dirty() == []
    one.put_back([SHARD])
    assert one.take_dirty() == [(SHARD, Cursor(4))]


def test_a_shard_never_seen_before_begins_where_it_is_told_and_is_stored_at_once() -> None:
    one = subscribed(Cursor(0))
    other = Shard("node", 1)
    assert not one.knows(other)
    extents = (Extent(Stream("node", 1, 0), 0, 50, False),)
    assert feed_of(one.seen(other, extents, 20)).next == 20
    assert one.take_dirty() == [(other, Cursor(20))]


def test_what_is_said_of_a_feed_that_is_over_changes_nothing() -> None:
    one = subscribed(Cursor(0))
    feed = feed_of(one.seen(SHARD, (generation(0, 0, 9, sealed=False),), 0))
    assert one.close() == [FeedClosed(feed)]
    assert feed.stopped
    assert one.changed(feed) == []
    assert one.take_dirty() == []
    one.check()


@pytest.mark.parametrize("broken", ["V1", "V2", "V3"])
def test_a_broken_state_is_found(broken: str) -> None:
    one = subscribed(Cursor(0))
    feed = feed_of(one.seen(SHARD, (generation(0, 0, 9, sealed=False),), 0))
    one.check()
    match broken:
        case "V1":
            one._by_feed[99] = SHARD
        case "V2":
            feed.stopped = True
        case _:
            one._dirty.add(Shard("nowhere", 4))
    with pytest.raises(AssertionError, match=broken):
        one.check()


# --- a reader alone -------------------------------------------------------------------------------


class Client:
    """Reads one shard alone, in any order and with any delay, over connections that end; retention runs."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ends = [0]
        """Where the generations end; the last one grows."""
        self.dropped = 0
        """So many generations are gone."""
        self.acked: set[int] = set()
        self.told: list[int] = []
        self.cursor = Cursor(0)
        self.feed: Feed | None = None
        self.telling: list[Gap] = []
        self.subscription = self._opened()

    def _opened(self) -> PrivateSubscription:
        return subscribed(self.cursor)

    def extents(self) -> tuple[Extent, ...]:
        firsts = [0, *self.ends]
        return tuple(
            Extent(Stream("node", 0, n), firsts[n], end, n + 1 < len(self.ends))
            for n, end in enumerate(self.ends)
            if n >= self.dropped
        )

    def step(self) -> None:
        match self.chance.choice(
            ("publish", "publish", "roll", "drop", "read", "ack", "hear", "end")
        ):
            case "publish":
                self.ends[-1] += self.chance.randint(1, 3)
            case "roll" if self.extents()[-1].first < self.ends[-1]:
                self.ends.append(self.ends[-1])
            case "drop" if self.dropped + 1 < len(self.ends):
                self.dropped += 1
            case "read":
                self.read()
            case "ack" if self.feed is not None and self.feed.out:
                first, upto = self.chance.choice(list(self.feed.out))
                self.ack(self.chance.randrange(first, upto))
            case "hear" if self.telling:
                self.hear()
            case "end" if self.chance.random() < 0.2:
                self.reconnect()
        self.see()
        self.subscription.check()
        if self.feed is not None:
            self.feed.check()

    def see(self) -> None:
        self.look()
        self.perform(self.subscription.seen(SHARD, self.extents(), 0))
        self.look()

    def look(self) -> None:
        first = self.extents()[0].first
        if self.feed is not None and first > self.feed.progress.low:
            self.telling += [gap for gap, _ in self.feed.lose(0, first, RETENTION)]

    def read(self) -> None:
        extent = next(
            (e for e in self.extents() if self.feed and e.stream == self.feed.stream), None
        )
        if self.feed is not None and extent is not None:
            wanted = self.feed.wanted(extent.end)
            if wanted is not None:
                upto = self.chance.randint(wanted[0] + 1, wanted[1])
                self.feed.looked_at(wanted[0], upto, [(wanted[0], upto)])

    def ack(self, offset: int) -> None:
        assert self.feed is not None
        self.acked.add(offset)
        self.feed.ack(offset, offset + 1)
        self.perform(self.subscription.changed(self.feed))

    def hear(self) -> None:
        gap = self.telling.pop(self.chance.randrange(len(self.telling)))
        assert self.feed is not None
        assert self.feed.confirm(gap.first, gap.upto)
        self.told += range(gap.first, gap.upto)
        self.perform(self.subscription.changed(self.feed))

    def reconnect(self) -> None:
        """What it has not confirmed it is told again; what it had in hand comes again, or is lost."""
        self.telling.clear()
        self.perform(self.subscription.close())
        dirty = dict(self.subscription.take_dirty())
        self.cursor = dirty.get(SHARD, self.cursor)
        self.subscription = self._opened()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case FeedOpened(feed):
                    assert self.feed is None
                    self.feed = feed
                case FeedClosed():
                    assert not self.telling, "it is closed before its client knows"
                    self.feed = None

    def finish(self) -> None:
        for _ in range(10_000):
            self.see()
            while self.telling:
                self.hear()
            self.read()
            if self.feed is not None:
                for first, upto in list(self.feed.out):
                    for offset in range(first, upto):
                        self.ack(offset)
            if (
                self.subscription.take_dirty() == []
                and self.feed
                and self.feed.progress.low == self.ends[-1]
            ):
                return
        raise AssertionError("it never ended")


@given(st.integers(0, 1 << 32))
def test_a_private_reader_is_told_of_all_that_it_did_not_acknowledge_and_of_nothing_else(
    seed: int,
) -> None:
    client = Client(random.Random(seed))
    for _ in range(120):
        client.step()
    client.finish()
    assert len(client.told) == len(set(client.told)), "told twice"
    assert not client.acked & set(client.told), "acknowledged, and told to be lost"
    assert client.acked | set(client.told) == set(range(client.ends[-1]))


@pytest.mark.parametrize("seed", range(3))
def test_something_is_lost_in_such_a_run(seed: int) -> None:
    client = Client(random.Random(seed))
    for _ in range(400):
        client.step()
    client.finish()
    assert client.told
    assert client.acked
