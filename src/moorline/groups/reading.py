"""Room: groups. The scheduler of a session: reads its feeds, selects what matches, and pushes it.

A feed is *ready* when there may be something for it. Ready feeds take turns; one without room in its
subscription's window waits for acknowledgements, one without messages waits for its shard, and all wait
for a slow client.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from moorline.core.block import Block
from moorline.core.feed import Feed
from moorline.core.frame import FRAME, HEAD
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import RETENTION, Gap
from moorline.core.topic import Matcher
from moorline.errors import MoorlineError
from moorline.groups.cluster import Cluster, Lines
from moorline.groups.selection import Selection, select
from moorline.groups.tasks import Tasks
from moorline.journal.segment import part_of
from moorline.limits import PEER_RETRY_MS, READS_PER_TURN_MAX, STREAM_READ_BYTES_MAX
from moorline.net.session import Session
from moorline.wire.topic import Messages, MessagesLost

log = logging.getLogger("moorline.groups")

FAR = 1 << 62
"""Beyond every offset: for streams whose end another node knows."""


class Window:
    """A subscription as its feeds see it."""

    __slots__ = ("is_held", "matcher", "number", "out", "qos", "size", "starved")

    def __init__(self, number: int, filter_text: str, size: int, qos: int) -> None:
        self.number = number
        self.matcher = Matcher(filter_text)
        self.size = size
        self.qos = qos
        self.is_held = False
        """Its member reads by itself: nothing is delivered."""
        self.out = 0
        """Messages that are delivered and not acknowledged."""
        self.starved: dict[int, Running] = {}
        """Feeds that wait for room."""


class Running:
    """A feed at work."""

    __slots__ = (
        "burying",
        "feed",
        "is_open",
        "is_ready",
        "is_waiting",
        "reading",
        "rest",
        "wake",
        "window",
    )

    def __init__(self, feed: Feed, window: Window, wake: Callable[["Running"], None]) -> None:
        self.feed = feed
        self.window = window
        self.is_open = True
        self.is_ready = False
        self.reading = False
        self.rest: Block | None = None
        """What was read and had no room in the window yet."""
        self.is_waiting = False
        """For news of its shard."""
        self.burying: set[int] = set()
        """Messages on their way to the dead letters."""
        self.wake = partial(wake, self)


class Reading:
    """All feeds of one session."""

    def __init__(
        self,
        session: Session,
        cluster: Cluster,
        changed: Callable[[Feed], None],
        bury: Callable[[Running, int], None],
    ) -> None:
        self.running: dict[int, Running] = {}
        self.delivered = 0
        self._session = session
        self._cluster = cluster
        self._changed = changed
        self._bury = bury
        self._ready: deque[Running] = deque()
        self._turn_due = False
        self._waits_for_client = False
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("a feed failed")

    # --- feeds come and go ------------------------------------------------------------------------

    def begin(self, feed: Feed, window: Window) -> None:
        running = self.running[feed.number] = Running(feed, window, self._woken)
        self._look_for_gone(running, self._cluster.first(feed.stream.line))
        self.ready(running)

    def end(self, feed: Feed) -> None:
        running = self.running.pop(feed.number, None)
        if running is None:
            return
        running.is_open = False
        window = running.window
        window.out -= len(feed.out)
        window.starved.pop(feed.number, None)
        if running.is_waiting:
            self._cluster.local.forget(feed.stream.shard, running.wake)
        self._feed_starved(window)

    def close(self) -> None:
        self._tasks.cancel()
        for running in list(self.running.values()):
            self.end(running.feed)

    def change(self, window: Window, size: int, qos: int) -> None:
        """The client has subscribed once more, with another window or qos."""
        window.size, window.qos = size, qos
        if qos == 0:  # of what is out nobody will say anything
            for running in [one for one in self.running.values() if one.window is window]:
                self.ack(running.feed.number, list(running.feed.out))
        self._feed_starved(window)

    # --- what the client says ---------------------------------------------------------------------

    def ack(self, number: int, ranges: list[Range]) -> None:
        running = self.running.get(number)
        if running is None:
            return  # too late
        freed = 0
        for first, upto in _sparing(ranges, running.burying):
            freed += running.feed.ack(first, upto)
        self._freed(running, freed)

    def taken(self, running: Running, count: int) -> None:
        """A member that holds a feed has taken so many messages of it by itself."""
        running.window.out += count
        self.delivered += count
        self._changed(running.feed)

    def give_back(self, number: int, ranges: list[Range]) -> None:
        running = self.running.get(number)
        if running is None:
            return
        freed = 0
        for first, upto in _sparing(ranges, running.burying):
            freed += running.feed.give_back(first, upto)
        self._freed(running, freed)
        self.ready(running)

    def reject(self, number: int, offset: int) -> None:
        running = self.running.get(number)
        if running is None:
            return
        if offset in running.burying:
            return  # said twice
        is_hopeless = running.feed.reject(offset)
        if is_hopeless:
            running.burying.add(offset)
            self._bury(running, offset)
        elif is_hopeless is False:
            self._freed(running, 1)
            self.ready(running)

    def buried(self, running: Running, offset: int) -> None:
        """A message is in its grave: for its stream it is done."""
        running.burying.discard(offset)
        if running.is_open:
            self._freed(running, running.feed.ack(offset, offset + 1))

    # --- what is gone -----------------------------------------------------------------------------

    def reshaped(self, lines: Lines) -> None:
        """Shards have other streams than before; what retention took meanwhile, clients are told at once."""
        for running in list(self.running.values()):
            extents = lines.get(running.feed.stream.line)
            if extents:
                self._look_for_gone(running, extents[0].first)

    def _look_for_gone(self, running: Running, kept_from: int) -> None:
        # Not left to whoever reads it: a reader whose window is full would know long after.
        if kept_from > running.feed.lowest:
            self._lose(running, 0, kept_from, RETENTION)

    def _lose(self, running: Running, first: int, upto: int, reason: str) -> None:
        feed, stream = running.feed, running.feed.stream
        losses = feed.lose(first, upto, reason)
        for gap, is_exact in losses if self._session.is_open else ():
            self._session.send(
                MessagesLost(
                    running.window.number,
                    stream.node,
                    stream.shard,
                    *gap,
                    feed=feed.number,
                    is_exact=is_exact,
                )
            )
        if losses:
            self._changed(feed)

    def confirm_lost(self, number: int, ranges: list[Range]) -> None:
        """The client knows of these losses."""
        running = self.running.get(number)
        if running is None:
            return  # too late: whoever has the stream now is told
        for first, upto in ranges:
            running.feed.confirm(first, upto)
        self._changed(running.feed)
        # With too many that were not confirmed it had stopped to read.
        self.ready(running)

    def not_buried(self, running: Running, offset: int, reason: str) -> None:
        """A message was gone before there was a dead letter of it: that is a loss too."""
        running.burying.discard(offset)
        if running.is_open and offset in running.feed.out:
            running.feed.out.remove(offset, offset + 1)
            running.feed.again.add(offset, offset + 1)
            self._lose(running, offset, offset + 1, reason)
            self._freed(running, 1)

    def _freed(self, running: Running, count: int) -> None:
        if count:
            running.window.out -= count
            self._feed_starved(running.window)
        self._changed(running.feed)

    def _feed_starved(self, window: Window) -> None:
        if window.starved and window.out < window.size:
            starved, window.starved = window.starved, {}
            for running in starved.values():
                self.ready(running)

    # --- turns ------------------------------------------------------------------------------------

    def ready(self, running: Running) -> None:
        if running.window.is_held:
            return
        if running.is_open and not running.is_ready and not running.reading:
            running.is_ready = True
            self._ready.append(running)
            self._turn_soon()

    def _wait(self, running: Running) -> None:
        """Until the shard has something new; once, however often it was looked at in vain."""
        if not running.is_waiting:
            running.is_waiting = True
            self._cluster.local.when_moved(running.feed.stream.shard, running.wake)

    def _woken(self, running: Running) -> None:
        running.is_waiting = False
        self.ready(running)

    def _turn_soon(self) -> None:
        if not self._turn_due and not self._waits_for_client:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        for _ in range(READS_PER_TURN_MAX):
            if not self._ready or not self._session.is_open:
                return
            if not self._session.writable:
                self._waits_for_client = True
                self._tasks.spawn(self._wait_for_client())
                return
            running = self._ready.popleft()
            running.is_ready = False
            self._read(running)
        if self._ready:
            self._turn_soon()

    async def _wait_for_client(self) -> None:
        await self._session.room_to_write()
        self._waits_for_client = False
        self._turn_soon()

    def _read(self, running: Running) -> None:
        feed, window = running.feed, running.window
        if window.out >= window.size:
            window.starved[feed.number] = running
            return
        if feed.stream.node != self._cluster.node:
            wanted = feed.wanted(FAR)
            if wanted is not None and not self._read_rest(running, wanted):
                self._read_later(running, wanted)
            return
        local, stream = self._cluster.local, feed.stream
        extent = local.store.extent(stream.shard, stream.generation)
        wanted = feed.wanted(extent.end if extent is not None else FAR)
        if wanted is None:
            self._wait(running)
            return
        if self._read_rest(running, wanted):
            return
        if not local.store.read_is_cached(stream.shard, stream.generation, wanted[0]):
            self._read_later(running, wanted)
            return
        found = local.store.read(stream.shard, stream.generation, wanted[0], STREAM_READ_BYTES_MAX)
        self._found(running, wanted, found)

    def _read_rest(self, running: Running, wanted: Range) -> bool:
        """What an earlier read brought from the disk or another node, and had no room for."""
        rest, running.rest = running.rest, None
        if rest is None or not rest.first <= wanted[0] < rest.upto:
            return False
        running.rest = rest
        self._found(running, wanted, part_of(rest, wanted[0], STREAM_READ_BYTES_MAX))
        return True

    def _read_later(self, running: Running, wanted: Range) -> None:
        running.reading = True
        self._tasks.spawn(self._read_away(running, wanted))

    async def _read_away(self, running: Running, wanted: Range) -> None:
        """From the disk, or from another node, which waits until there is something."""
        stream, cluster = running.feed.stream, self._cluster
        found: Block | Gap | None = None
        try:
            if stream.node == cluster.node:
                found = await cluster.local.read(
                    stream.shard, stream.generation, wanted[0], STREAM_READ_BYTES_MAX
                )
            else:
                found = await cluster.read(stream, wanted[0])
        except MoorlineError as error:
            log.debug(
                "a stream cannot be read now", extra={"stream": str(stream), "error": str(error)}
            )
            await asyncio.sleep(PEER_RETRY_MS / 1_000)
        finally:
            running.reading = False
        if not running.is_open or running.feed.stopped:
            return
        again = running.feed.wanted(FAR)
        if found is None or again is None or again[0] != wanted[0]:
            self.ready(running)
        elif running.window.out >= running.window.size:
            running.window.starved[running.feed.number] = running
        else:
            running.rest = found if isinstance(found, Block) else None
            self._found(running, (wanted[0], min(wanted[1], again[1])), found)

    def _found(self, running: Running, wanted: Range, found: Block | Gap | None) -> None:
        feed, window = running.feed, running.window
        if found is None:
            if feed.stream.node == self._cluster.node:
                self._wait(running)
            return
        if isinstance(found, Gap):
            first, upto = max(found.first, wanted[0]), min(found.upto, wanted[1])
            self._lose(running, first, upto, found.reason)
        else:
            room = window.size - window.out
            now_us = self._cluster.local.clock.expiry_us()
            selection = select(found, wanted[1], room, window.matcher, now_us)
            self._deliver(running, found.first, selection)
        self._changed(feed)
        self.ready(running)

    def _deliver(self, running: Running, first: int, selection: Selection) -> None:
        feed, window = running.feed, running.window
        feed.looked_at(first, selection.upto, selection.runs)
        if not selection.taken:
            return
        frames = selection.frames
        tries = [
            (offset, failures + 1)
            for offset, failures in feed.progress.failures.items()
            if any(start <= offset < stop for start, stop in selection.runs)
        ]
        hopeless = [offset for offset, _ in tries if feed.is_beyond(offset)]
        if hopeless:
            frames = _without(frames, set(hopeless))
            tries = [one for one in tries if one[0] not in hopeless]
        window.out += selection.taken
        self.delivered += selection.taken - len(hopeless)
        if frames:
            upto = selection.runs[-1][1]
            self._session.push(Messages(feed.number, frames, tries, upto), len(frames))
        if window.qos == 0:
            for start, stop in selection.runs:
                window.out -= feed.ack(start, stop)
        for offset in hopeless:
            running.burying.add(offset)
            self._bury(running, offset)


def _sparing(ranges: list[Range], burying: set[int]) -> Iterable[Range]:
    """The ranges without what is on its way to the dead letters: of that the client has no say any more."""
    if not burying:
        return ranges
    left = Ranges(ranges)
    for offset in burying:
        left.remove(offset, offset + 1)
    return left


def _without(frames: bytes, offsets: set[int]) -> bytes:
    """The frames but those of some offsets; rare, and so frame by frame."""
    kept, place = [], 0
    while place < len(frames):
        length, _, offset, *_ = FRAME.unpack_from(frames, place)
        if offset not in offsets:
            kept.append(frames[place : place + HEAD.size + length])
        place += HEAD.size + length
    return b"".join(kept)
