"""Room: core/delivery. Delivery: what the feeds of one session have for its client, block by block.

    effects = delivery.open(feed, window, kept_from)
    effects = delivery.turn(now_us)                  # while some are `ready`, and the client has room
    effects = delivery.found(feed.number, block, now_us)

The states of a feed are those of core/delivery/open_feed.py. The machine never sees a clock, a disk or a
protocol. Whoever hosts it performs its effects (core/delivery/effects.py): those to the client through an
outlet, of which the native protocol is one.

Invariants, looked at by `check`:

    D1  a window counts exactly what its feeds have out
    D3  a feed has at most one question open: READING and WAITING are left by an answer, or by the end
    D4  what is on its way to the dead letters is out, so that no acknowledgement passes it
    D6  a feed that waits, for a block or for news, keeps no block in memory meanwhile

with F1 to F5 of each feed (core/delivery/feed.py), D2 and D5 of their turns (core/delivery/feed_turns.py).
Who waits for nothing would never be woken: D2, D3 and D5 together say that a feed which is not IDLE is
waited for by somebody.
"""

from collections import Counter
from collections.abc import Iterable

from moorline.core.delivery.effects import (
    AwaitNews,
    Bury,
    Deliver,
    FeedMoved,
    ForgetNews,
    ReadBlock,
    TellLost,
)
from moorline.core.delivery.feed import Feed
from moorline.core.delivery.feed_turns import FeedTurns
from moorline.core.delivery.open_feed import OpenFeed, State, Window
from moorline.core.delivery.selection import Selection, select, select_picked
from moorline.core.effects import Effect
from moorline.core.frames.block import Block, part_of
from moorline.core.frames.frame import without
from moorline.core.frames.picked import Picked
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import RETENTION, Gap
from moorline.limits import RANGES_PER_TAKE_MAX, STREAM_READ_BYTES_MAX

FAR = 1 << 62
"""Beyond every offset: where a stream ends, whoever reads it knows."""


class Delivery:
    """All feeds of one session."""

    def __init__(self) -> None:
        self.feeds: dict[int, OpenFeed] = {}
        self.delivered = 0
        self._turns = FeedTurns()

    @property
    def is_ready(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._turns.queue)

    # --- feeds come and go ------------------------------------------------------------------------

    def open(self, feed: Feed, window: Window, kept_from: int) -> list[Effect]:
        """`kept_from`: the first message that its shard still has."""
        one = self.feeds[feed.number] = OpenFeed(feed, window)
        # What is gone is told before the first read, which would find it too, and tell it a second time.
        effects = self._look_for_gone(one, kept_from)
        self._turns.make_ready(one)
        return effects

    def close(self, number: int) -> list[Effect]:
        one = self.feeds.pop(number, None)
        if one is None:
            return []
        effects: list[Effect] = []
        if one.state is State.WAITING:
            effects.append(ForgetNews(number, one.feed.stream))
        # Its turn may stand in `ready` still; by this state it is passed over there, which is cheaper than a
        # search for it.
        one.state = State.CLOSED
        window = one.window
        window.starved.pop(number, None)
        # What its client had of it is nobody's any more, and gives room to the other feeds of the
        # subscription.
        window.out -= len(one.feed.out)
        self._turns.feed_starved(window)
        return effects

    def close_all(self) -> list[Effect]:
        return [effect for number in list(self.feeds) for effect in self.close(number)]

    def change(self, window: Window, size: int, qos: int) -> list[Effect]:
        """The client has subscribed once more, with another window or qos."""
        effects: list[Effect] = []
        # Before the acknowledgements below: the room that they make is that of the new size.
        window.size, window.qos = size, qos
        if qos == 0:  # of what is out nobody will say anything
            for one in [one for one in self.feeds.values() if one.window is window]:
                effects += self.ack(one.feed.number, list(one.feed.out))
        self._turns.feed_starved(window)
        return effects

    # --- what the client says ---------------------------------------------------------------------

    def ack(self, number: int, ranges: list[Range]) -> list[Effect]:
        one = self.feeds.get(number)
        if one is None:
            return []  # too late
        freed = 0
        for first, upto in _sparing(ranges, one.burying) if one.burying else ranges:
            freed += one.feed.ack(first, upto)
        return self._freed(one, freed)

    def give_back(self, number: int, ranges: list[Range]) -> list[Effect]:
        one = self.feeds.get(number)
        if one is None:
            return []
        freed = 0
        for first, upto in _sparing(ranges, one.burying):
            freed += one.feed.give_back(first, upto)
        # What ends a wait goes first: a feed that is drained by this is closed by the rest.
        return self._look_again(one) + self._freed(one, freed)

    def reject(self, number: int, offset: int) -> list[Effect]:
        one = self.feeds.get(number)
        if one is None or offset in one.burying:
            return []  # too late, or said twice
        is_hopeless = one.feed.reject(offset)
        if is_hopeless:
            one.burying.add(offset)
            return [Bury(number, offset)]
        if is_hopeless is None:
            return []  # it is not out
        return self._look_again(one) + self._freed(one, 1)

    def confirm_lost(self, number: int, ranges: list[Range]) -> list[Effect]:
        """The client knows of these losses."""
        one = self.feeds.get(number)
        if one is None:
            return []  # too late: whoever has the stream now is told
        for first, upto in ranges:
            one.feed.confirm(first, upto)
        # With too many that were not confirmed it had stopped to read.
        return [*self._look_again(one), FeedMoved(one.feed)]

    def pull(self, number: int, upto: int, count: int) -> tuple[list[Range], int, list[Effect]]:
        """A member that holds a feed takes so many messages of it by itself, below `upto`.

        Returns what it has now, and below what nothing is left; of a feed that is over or stopped that
        is nothing.
        """
        one = self.feeds.get(number)
        if one is None or one.feed.stopped:
            return [], 0, []
        feed, taken, end = one.feed, list[Range](), upto
        # In this order, as `Feed.wanted` has it. No filter and no window: a member that takes by itself
        # chooses by itself, and what it takes is out like anything that was delivered.
        for first, stop in [*feed.again.clip(0, upto), *feed.progress.open_ranges(feed.next, upto)]:
            if not count or len(taken) == RANGES_PER_TAKE_MAX:
                end = first
                break
            last = min(stop, first + count)
            feed.looked_at(first, last, [(first, last)])
            taken.append((first, last))
            count -= last - first
            if last < stop:
                end = last
                break
        messages = sum(stop - first for first, stop in taken)
        one.window.out += messages
        self.delivered += messages
        return taken, end, [FeedMoved(feed)] if taken else []

    def release(self) -> None:
        """The connection is over. A batch says nothing of single messages: nobody is to blame for one."""
        for one in self.feeds.values():
            if one.window.is_held:
                for first, upto in list(one.feed.out):
                    one.window.out -= one.feed.give_back(first, upto)

    # --- what is gone -----------------------------------------------------------------------------

    def kept_from(self, number: int, first: int) -> list[Effect]:
        """Retention took what was below; clients are told at once."""
        one = self.feeds.get(number)
        return self._look_for_gone(one, first) if one is not None else []

    def buried(self, number: int, offset: int) -> list[Effect]:
        """A message is in its grave: for its stream it is done."""
        one = self.feeds.get(number)
        if one is None:
            return []
        one.burying.discard(offset)
        return self._freed(one, one.feed.ack(offset, offset + 1))

    def not_buried(self, number: int, offset: int, reason: str) -> list[Effect]:
        """A message was gone before there was a dead letter of it: that is a loss too."""
        one = self.feeds.get(number)
        if one is None:
            return []
        one.burying.discard(offset)
        if offset not in one.feed.out:
            return []
        # By way of `again`: that it was delivered once makes the loss an exact one.
        one.feed.out.remove(offset, offset + 1)
        one.feed.again.add(offset, offset + 1)
        return self._lose(one, offset, offset + 1, reason) + self._freed(one, 1)

    def _look_for_gone(self, one: OpenFeed, kept_from: int) -> list[Effect]:
        # Not left to whoever reads it: a reader whose window is full would know long after.
        if kept_from > one.feed.lowest:
            return self._lose(one, 0, kept_from, RETENTION)
        return []

    def _lose(self, one: OpenFeed, first: int, upto: int, reason: str) -> list[Effect]:
        feed = one.feed
        losses = feed.lose(first, upto, reason)
        effects: list[Effect] = [
            TellLost(one.window.number, feed.number, feed.stream, gap, is_exact)
            for gap, is_exact in losses
        ]
        return [*effects, FeedMoved(feed)] if losses else []

    # --- room in the window -----------------------------------------------------------------------

    def _freed(self, one: OpenFeed, count: int) -> list[Effect]:
        if count:
            one.window.out -= count
            if one.window.starved:
                self._turns.feed_starved(one.window)
        return [FeedMoved(one.feed)]

    # --- turns ------------------------------------------------------------------------------------

    def moved(self, number: int) -> None:
        """The answer to `AwaitNews`."""
        one = self.feeds.get(number)
        if one is not None and one.state is State.WAITING:
            self._turns.make_ready(one)

    def passed(self, number: int, upto: int) -> list[Effect]:
        """While it waits somebody else has looked: of what is below `upto` nothing is for it."""
        one = self.feeds.get(number)
        if one is None or one.state is not State.WAITING or upto <= one.feed.next:
            return []
        one.feed.looked_at(one.feed.next, upto, [])
        return [FeedMoved(one.feed)]

    def unread(self, number: int) -> None:
        """What was asked for cannot be read now: it is asked for again."""
        one = self.feeds.get(number)
        if one is not None and one.state is State.READING:
            self._turns.make_ready(one)

    def turn(self, now_us: int) -> list[Effect]:
        """The next feed that is ready has its turn."""
        one = self._turns.next()
        if one is None:
            return []  # it is over
        feed, window = one.feed, one.window
        if window.is_full:
            self._turns.starve(one)
            return []
        wanted = feed.wanted(FAR)
        if wanted is None:
            return []  # stopped, or with too many losses; what changes that looks again
        # The rest of the last block, if it begins where we are. Taken out first: if it does not fit, it
        # goes (D6).
        rest, one.rest = one.rest, None
        if rest is not None and rest.first <= wanted[0] < rest.upto:
            one.rest = rest
            effects = self._pass_on(
                one, wanted, part_of(rest, wanted[0], STREAM_READ_BYTES_MAX), now_us
            )
            self._turns.make_ready(one)
            return effects
        one.state, one.wanted = State.READING, wanted
        return [ReadBlock(feed.number, feed.stream, wanted[0])]

    def found(
        self, number: int, found: Block | Picked | Gap | None, now_us: int, end: int = FAR
    ) -> list[Effect]:
        """The answer to `ReadBlock`; None if the stream has no more for now.

        `end`: where the stream ends now, if that is known. A feed that comes to it waits at once.
        """
        one = self.feeds.get(number)
        if one is None or one.state is not State.READING:
            return []
        # Asked again what is wanted: while the block was read the client may have given something back, or
        # the feed may have been stopped. What was read for an older wish is not delivered.
        feed, window, wanted = one.feed, one.window, one.wanted
        again = feed.wanted(FAR)
        if again is None:  # it was stopped meanwhile
            one.state = State.IDLE
        elif again[0] != wanted[0]:
            # Something is to come again, and goes first: what was read is read once more.
            self._turns.make_ready(one)
        elif window.is_full:
            self._turns.starve(one)
        elif found is None:
            one.state = State.WAITING
            return [AwaitNews(number, feed.stream)]
        else:
            one.rest = found if isinstance(found, Block) else None
            effects = self._pass_on(one, (wanted[0], min(wanted[1], again[1])), found, now_us)
            if feed.is_at(end) and not feed.stopped:
                # The wait may be long, and all of the block was looked at.
                one.state, one.rest = State.WAITING, None
                # The wait goes first: what follows may close the feed, and that ends the wait.
                effects.insert(0, AwaitNews(number, feed.stream))
            else:
                self._turns.make_ready(one)
            return effects
        return []

    def _look_again(self, one: OpenFeed) -> list[Effect]:
        """Something may be to come again; one that is READING looks when it is answered."""
        was_waiting = one.state is State.WAITING
        if was_waiting or one.state is State.IDLE:
            self._turns.make_ready(one)
        # Nobody is to wake it for news any more: a second answer would meet another question (D3).
        return [ForgetNews(one.feed.number, one.feed.stream)] if was_waiting else []

    def _pass_on(
        self, one: OpenFeed, wanted: Range, found: Block | Picked | Gap, now_us: int
    ) -> list[Effect]:
        feed, window = one.feed, one.window
        if isinstance(found, Gap):
            # No more of it than was wanted: what is around may be done, or not ours.
            first, upto = max(found.first, wanted[0]), min(found.upto, wanted[1])
            effects = self._lose(one, first, upto, found.reason)
        else:
            room = window.size - window.out
            how = (wanted[1], room, window.matcher, now_us, window.own_producer)
            selection = (
                select_picked(found, *how) if isinstance(found, Picked) else select(found, *how)
            )
            effects = self._deliver(one, found.first, selection)
        effects.append(FeedMoved(feed))
        return effects

    def _deliver(self, one: OpenFeed, first: int, selection: Selection) -> list[Effect]:
        feed, window = one.feed, one.window
        # All up to there was looked at, also what did not match: that is done, and the cursor passes it.
        feed.looked_at(first, selection.upto, selection.runs)
        if not selection.taken:
            return []
        frames = selection.frames
        tries = [
            (offset, failures + 1)
            for offset, failures in feed.progress.failures.items()
            if any(start <= offset < stop for start, stop in selection.runs)
        ]
        # Failed as often as it may under another member, who did not come to bury it: this one does.
        hopeless = [offset for offset, _ in tries if feed.has_failed_too_often(offset)]
        if hopeless:
            frames = without(frames, set(hopeless))
            tries = [one_try for one_try in tries if one_try[0] not in hopeless]
        window.out += selection.taken
        self.delivered += selection.taken - len(hopeless)
        effects: list[Effect] = []
        if frames:
            upto = selection.runs[-1][1]
            effects.append(Deliver(window.number, feed.number, frames, tries, upto))
        # Before what follows: at qos 0 everything that was delivered is done at once, but not these (D4).
        one.burying.update(hopeless)
        if window.qos == 0:
            for start, stop in _sparing(selection.runs, one.burying):
                window.out -= feed.ack(start, stop)
        effects += [Bury(feed.number, offset) for offset in hopeless]
        return effects

    # --- what always holds ------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants."""
        out: Counter[Window] = Counter()
        for number, one in self.feeds.items():
            window = one.window
            out[window] += len(one.feed.out)
            assert all(offset in one.feed.out for offset in one.burying), f"D4: {number}"
            is_asking = one.state in (State.READING, State.WAITING)
            assert one.rest is None or not is_asking, f"D6: {number} is {one.state} with a block"
            assert one.is_open, f"D3: {number} is over, and still here"
            one.feed.check()
        for window, count in out.items():
            assert window.out == count, f"D1: {window.out} of {count} are counted"
        self._turns.check(self.feeds.values())


def _sparing(ranges: list[Range], burying: set[int]) -> Iterable[Range]:
    """The ranges without what is on its way to the dead letters: of that the client has no say any more."""
    if not burying:
        return ranges
    left = Ranges(ranges)
    for offset in burying:
        left.remove(offset, offset + 1)
    return left
