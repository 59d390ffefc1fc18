"""Losses: what is gone before it was acknowledged is told, all of it, and nothing else.

Feeds tell them one by one. A private subscription is driven here through everything that can happen to it;
for groups that is the simulation (I18).
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.core.delivery.feed import Feed, FeedClosed, FeedOpened, Loss
from moorline.core.delivery.private_subscription import PrivateSubscription
from moorline.core.delivery.progress import Cursor
from moorline.core.effects import Effect
from moorline.core.stream import DAMAGE, RETENTION, Extent, Gap, Shard, Stream
from moorline.limits import FEED_LOSSES_MAX

SHARD = Shard("node", 0)


def feed_at(cursor: Cursor, *ranges: tuple[int, int]) -> Feed:
    return Feed(1, 1, Stream("node", 0, 0), cursor, ranges=ranges or None)


def lost(*ranges: tuple[int, int], is_exact: bool = False) -> list[Loss]:
    return [Loss(Gap(*one, RETENTION), is_exact) for one in ranges]


def test_what_is_done_or_in_hand_is_not_lost() -> None:
    feed = feed_at(Cursor(2, ((4, 6),)))
    feed.looked_at(6, 8, [(6, 7)])
    assert feed.lose(0, 10, RETENTION) == lost((2, 4), (8, 10))
    assert feed.lose(0, 10, RETENTION) == [], "told once"
    assert feed.wanted(20) == (10, 20), "nothing of it is read any more"
    assert feed.ack(6, 7) == 1, "what is in hand counts"
    assert feed.progress.low == 2, "what is told and not confirmed is not done"
    assert feed.confirm(2, 4)
    assert not feed.confirm(2, 4)
    assert not feed.confirm(8, 9), "a range that was not told"
    assert feed.confirm(8, 10)
    assert feed.progress.cursor() == Cursor(10)
    assert feed.lost == [Gap(2, 4, RETENTION), Gap(8, 10, RETENTION)]


def test_what_was_delivered_once_is_lost_for_certain() -> None:
    feed = feed_at(Cursor(0))
    feed.looked_at(0, 4, [(1, 4)])
    feed.give_back(2, 4)
    assert feed.lose(0, 6, RETENTION) == [*lost((2, 4), is_exact=True), *lost((4, 6))]


def test_of_a_feed_of_ranges_only_its_own_is_lost() -> None:
    feed = feed_at(Cursor(0), (3, 6), (9, 12))
    feed.looked_at(3, 5, [(3, 5)])
    feed.give_back(3, 4)
    assert feed.lose(0, 20, RETENTION) == lost((5, 6), (9, 12)), "what went back is for others"
    assert not feed.is_done
    feed.ack(4, 5)
    feed.confirm(5, 6)
    assert not feed.is_done
    feed.confirm(9, 12)
    assert feed.is_done


def test_a_feed_that_is_stopped_tells_no_more_and_waits_for_what_it_told() -> None:
    feed = feed_at(Cursor(0))
    feed.lose(0, 3, RETENTION)
    feed.stop()
    assert feed.lose(0, 6, RETENTION) == []
    assert not feed.is_drained
    feed.confirm(0, 3)
    assert feed.is_drained


def test_neighbours_that_were_confirmed_are_one_loss() -> None:
    feed = feed_at(Cursor(0))
    for first in (4, 0, 2, 8):
        feed.telling[first, first + 2] = Gap(first, first + 2, RETENTION)
    feed.telling[10, 12] = Gap(10, 12, DAMAGE)
    for first in (4, 0, 2, 8, 10):
        assert feed.confirm(first, first + 2)
    assert feed.lost == [Gap(0, 6, RETENTION), Gap(8, 10, RETENTION), Gap(10, 12, DAMAGE)]
    assert feed.lost_messages == 10


def with_holes(feed: Feed, upto: int, *, confirms: bool) -> None:
    """Every other message is damaged; the others are acknowledged at once."""
    while (wanted := feed.wanted(upto)) is not None:
        offset = wanted[0]
        if offset % 2:
            feed.looked_at(offset, offset + 1, [(offset, offset + 1)])
            feed.ack(offset, offset + 1)
            continue
        for gap, _ in feed.lose(offset, offset + 1, DAMAGE):
            if confirms:
                feed.confirm(gap.first, gap.upto)


@pytest.mark.parametrize("confirms", [True, False])
def test_a_feed_with_many_losses_reads_no_more(confirms: bool) -> None:
    feed = feed_at(Cursor(0))
    with_holes(feed, 10 * FEED_LOSSES_MAX, confirms=confirms)
    assert len(feed.lost) + len(feed.telling) == FEED_LOSSES_MAX
    assert feed.next == 2 * FEED_LOSSES_MAX - 1
    assert len(feed.progress.cursor().acked) < FEED_LOSSES_MAX
    for gap in list(feed.telling.values()):
        feed.confirm(gap.first, gap.upto)
    assert feed.wanted(10 * FEED_LOSSES_MAX) is None, "until there is a new lease"


def test_a_private_feed_with_many_losses_goes_on_when_they_are_confirmed() -> None:
    """Nobody but its client hears of them, so nothing is kept of them."""
    feed = Feed(1, 1, Stream("node", 0, 0), Cursor(0), is_reported=False)
    with_holes(feed, 10 * FEED_LOSSES_MAX, confirms=True)
    assert feed.progress.cursor() == Cursor(10 * FEED_LOSSES_MAX)
    assert feed.lost == []


# --- a private subscription -----------------------------------------------------------------------


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
        self.lines = self._opened()

    def _opened(self) -> PrivateSubscription:
        numbers = iter(range(1, 1_000))
        return PrivateSubscription(1, [(SHARD, self.cursor)], lambda: next(numbers))

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

    def see(self) -> None:
        self.look()
        self.perform(self.lines.seen(SHARD, self.extents(), 0))
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
        self.perform(self.lines.changed(self.feed))

    def hear(self) -> None:
        gap = self.telling.pop(self.chance.randrange(len(self.telling)))
        assert self.feed is not None
        assert self.feed.confirm(gap.first, gap.upto)
        self.told += range(gap.first, gap.upto)
        self.perform(self.lines.changed(self.feed))

    def reconnect(self) -> None:
        """What it has not confirmed it is told again; what it had in hand comes again, or is lost."""
        self.telling.clear()
        self.perform(self.lines.close())
        dirty = dict(self.lines.take_dirty())
        self.cursor = dirty.get(SHARD, self.cursor)
        self.lines = self._opened()

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
                self.lines.take_dirty() == []
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
