"""Room: sessions. Delivery over real streams: it reads from the disk and from other nodes, and fills an
outlet.

Ready feeds take turns of the loop, as long as the client reads what it gets.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from moorline.core.delivery.delivery import FAR, Delivery
from moorline.core.delivery.effects import AwaitNews, Deliver, ForgetNews, ReadBlock, TellLost
from moorline.core.delivery.feed import Feed
from moorline.core.delivery.open_feed import OpenFeed, Window
from moorline.core.effects import Effect
from moorline.core.frames.block import Block
from moorline.core.frames.picked import Picked, nothing_between, picked_behind
from moorline.core.ranges import Range
from moorline.core.stream import Gap
from moorline.errors import MoorlineError
from moorline.journal.streams.topic_picks import Wish
from moorline.limits import (
    PEER_RETRY_MS,
    PICK_MESSAGES_MAX,
    PICK_SHARE_MAX,
    READS_PER_TURN_MAX,
    STREAM_PASS_MS,
    STREAM_READ_BYTES_MAX,
)
from moorline.net.interpreter import Performer
from moorline.net.tasks import Tasks
from moorline.sessions.outlet import Outlet
from moorline.topics.directory import ShardExtents, StreamDirectory
from moorline.topics.filtered_news import Sleeper
from moorline.topics.traces import DeliveryTraces

log = logging.getLogger("moorline.groups")


class DeliveryHost:
    """The delivery of one session, at work."""

    def __init__(self, outlet: Outlet, directory: StreamDirectory) -> None:
        self.machine = Delivery()
        self.perform: Callable[[Iterable[Effect]], None]
        """The session's: it knows our `performers`, and what `FeedMoved` and `Bury` mean."""
        self._outlet = outlet
        self._directory = directory
        self._now_us = 0
        self._wakers: dict[int, Callable[[], None]] = {}
        self.sleepers: dict[int, Sleeper] = {}
        """Of subscriptions that sleep until something comes for them, by their numbers."""
        self.plain: set[int] = set()
        """Subscriptions of this session alone, by their numbers: nobody else asks how far they are."""
        self._sleeping: dict[int, Sleeper] = {}
        """Feeds of those that do."""
        self._reading_all: set[int] = set()
        """Feeds of other nodes' streams of which too much is for them to be picked out."""
        self._turn_due = False
        self._waits_for_client = False
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("a feed failed")
        traces = directory.local.traces
        self._traces = None if traces is None else DeliveryTraces(traces)

    def performers(self) -> Mapping[type[Effect], Performer]:
        return {
            ReadBlock: self._read,
            AwaitNews: self._await_news,
            ForgetNews: self._forget_news,
            Deliver: self._outlet.deliver if self._traces is None else self._deliver_traced,
            TellLost: self._tell_lost,
        }

    def close(self) -> None:
        self._tasks.cancel()
        if self._traces is not None:
            self._traces.close()
        self.perform(self.machine.close_all())

    # --- feeds, and what the client says of their messages ----------------------------------------

    def open(self, feed: Feed, window: Window) -> None:
        self._did(self.machine.open(feed, window, self._directory.first(feed.stream.shard)))

    def end(self, feed: Feed) -> None:
        self._did(self.machine.close(feed.number))
        if self._traces is not None:
            self._traces.ended(feed.number)
        self._wakers.pop(feed.number, None)
        self._reading_all.discard(feed.number)

    def change(self, window: Window, size: int, qos: int) -> None:
        self._did(self.machine.change(window, size, qos))

    def ack(self, number: int, ranges: list[Range]) -> None:
        self._did(self.machine.ack(number, ranges))
        if self._traces is not None:
            self._traces.acked(number, ranges)

    def give_back(self, number: int, ranges: list[Range]) -> None:
        self._did(self.machine.give_back(number, ranges))

    def reject(self, number: int, offset: int) -> None:
        self._did(self.machine.reject(number, offset))

    def confirm_lost(self, number: int, ranges: list[Range]) -> None:
        self._did(self.machine.confirm_lost(number, ranges))

    def pull(self, number: int, upto: int, count: int) -> tuple[list[Range], int]:
        one = self.machine.feeds.get(number)
        ranges, end, effects = self.machine.pull(number, upto, count)
        self._did(effects)
        if self._traces is not None and one is not None and ranges:
            self._tasks.spawn(self._traces.pulled(one, ranges, self._directory.read_anywhere))
        return ranges, end

    def buried(self, number: int, offset: int) -> None:
        self._did(self.machine.buried(number, offset))

    def not_buried(self, number: int, offset: int, reason: str) -> None:
        self._did(self.machine.not_buried(number, offset, reason))

    def reshaped(self, shard_extents: ShardExtents) -> None:
        """Shards have other streams than before; what retention took meanwhile, clients are told at once."""
        for number, one in list(self.machine.feeds.items()):
            extents = shard_extents.get(one.feed.stream.shard)
            if extents:
                # What went while it slept was not for it, and is no loss.
                self._pass(number, one)
                self._did(self.machine.kept_from(number, extents[0].first))

    def _did(self, effects: list[Effect]) -> None:
        self.perform(effects)
        if self.machine.is_ready:
            self._turn_soon()

    # --- turns ------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._turn_due and not self._waits_for_client:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        self._now_us = self._directory.local.clock.expiry_us()
        self._read_some()
        self._outlet.end_turn()

    def _read_some(self) -> None:
        for _ in range(READS_PER_TURN_MAX):
            if not self.machine.is_ready:
                return
            if not self._outlet.has_room:
                if self._outlet.is_open:
                    self._waits_for_client = True
                    self._tasks.spawn(self._wait_for_client())
                return
            self.perform(self.machine.turn(self._now_us))
        if self.machine.is_ready:
            self._turn_soon()

    async def _wait_for_client(self) -> None:
        await self._outlet.room()
        self._waits_for_client = False
        self._turn_soon()

    # --- reads ------------------------------------------------------------------------------------

    def _read(self, read: ReadBlock) -> None:
        stream, directory = read.stream, self._directory
        if stream.home == directory.node:
            now = directory.local.store.read_now(
                stream.shard_number, stream.generation, read.offset, STREAM_READ_BYTES_MAX
            )
            if now is not None:
                end = FAR if now.end is None else now.end
                self.perform(self.machine.found(read.feed, now.found, self._now_us, end))
                return
        self._tasks.spawn(self._read_away(read))

    async def _read_away(self, read: ReadBlock) -> None:
        """From the disk, or from another node, which waits until there is something."""
        stream, directory = read.stream, self._directory
        try:
            found = await self._found(read)
        except (MoorlineError, OSError) as error:
            log.debug(
                "a stream cannot be read now", extra={"stream": str(stream), "error": str(error)}
            )
            await asyncio.sleep(PEER_RETRY_MS / 1_000)
            found = None
        if found is None:
            # Nothing came within its time, or it moved while it was read: that is looked at once more.
            self.machine.unread(read.feed)
            self._did([])
        else:
            now_us = directory.local.clock.expiry_us()
            self._did(self.machine.found(read.feed, found, now_us))
            self._outlet.end_turn()

    async def _found(self, read: ReadBlock) -> Block | Picked | Gap | None:
        stream, directory = read.stream, self._directory
        if stream.home != directory.node:
            return await self._found_elsewhere(read)
        wish = self._wish(read)
        if wish is None:
            return await directory.local.read(stream, read.offset)
        return await directory.local.pick(stream, read.offset, wish)

    def _wish(self, read: ReadBlock) -> Wish | None:
        """What a feed wants of its stream; None if that is everything."""
        one = self.machine.feeds.get(read.feed)
        if one is None or one.window.matcher.takes_all:
            return None
        room = max(1, one.window.size - one.window.out)
        return Wish((one.window.matcher.filter,), one.wanted[1], min(room, PICK_MESSAGES_MAX))

    async def _picked_elsewhere(self, read: ReadBlock, wish: Wish) -> Picked | Gap | None:
        found = await self._directory.pick(read.stream, read.offset, wish)
        if isinstance(found, Picked) and (
            len(found.offsets) > PICK_SHARE_MAX * (found.upto - found.first)
        ):
            # Whole blocks, which all readers of this node share, cost less.
            self._reading_all.add(read.feed)
        return found

    async def _found_elsewhere(self, read: ReadBlock) -> Block | Picked | Gap | None:
        """Of another node's stream. What a plain subscription does not want is passed over at once, as if it
        slept meanwhile: a turn and another task for it would cost three times what the look does."""
        wish = None if read.feed in self._reading_all else self._wish(read)
        if wish is not None and self._directory.may_pick(read.stream, read.offset):
            return await self._picked_elsewhere(read, wish)
        offset, ends_s = read.offset, self._loop.time() + STREAM_PASS_MS / 1_000
        while True:
            found = await self._directory.read(read.stream, offset)
            if not isinstance(found, Block):
                break
            if not self._may_pass(read, found):
                return found if offset == read.offset else picked_behind(read.offset, found)
            offset = found.upto
            if self._loop.time() >= ends_s:
                break
        # What was passed over first: what follows is asked for again.
        return found if offset == read.offset else nothing_between(read.offset, offset)

    def _may_pass(self, read: ReadBlock, block: Block) -> bool:
        """Whether nothing of a block is for it, and what it wants is what it wanted."""
        one = self.machine.feeds.get(read.feed)
        if (
            one is None
            or one.window.number not in self.plain
            or any(map(one.window.matcher, block.names))
        ):
            return False
        return one.wanted[1] == FAR and one.feed.wanted(FAR) == one.wanted

    def _await_news(self, wait: AwaitNews) -> None:
        number, shard = wait.feed, wait.stream.shard_number
        one = self.machine.feeds[number]
        sleeper = self.sleepers.get(one.window.number)
        if sleeper is not None and sleeper.wait(shard, one.feed.next, partial(self._came, number)):
            self._sleeping[number] = sleeper
            return
        waker = self._wakers.get(number)
        if waker is None:
            waker = self._wakers[number] = partial(self._moved, number)
        self._directory.local.when_moved(shard, waker)

    def _forget_news(self, wait: ForgetNews) -> None:
        shard, sleeper = wait.stream.shard_number, self._sleeping.pop(wait.feed, None)
        if sleeper is not None:
            sleeper.forget(shard)
        elif wait.feed in self._wakers:
            self._directory.local.forget(shard, self._wakers[wait.feed])

    def _came(self, number: int, first: int) -> None:
        """Something for a feed that sleeps; nothing before it was."""
        self._sleeping.pop(number, None)
        self.perform(self.machine.passed(number, first))
        self._moved(number)

    def pass_slept(self) -> None:
        """Places of feeds that sleep come to where they would be had they read all of it."""
        for number in list(self._sleeping):
            one = self.machine.feeds.get(number)
            if one is not None:
                self._pass(number, one)

    def _pass(self, number: int, one: OpenFeed) -> None:
        sleeper = self._sleeping.get(number)
        if sleeper is not None:
            reached = sleeper.reached(one.feed.stream.shard_number)
            self.perform(self.machine.passed(number, reached))

    def _moved(self, number: int) -> None:
        self.machine.moved(number)
        self._did([])

    # --- the client -------------------------------------------------------------------------------

    def _deliver_traced(self, effect: Deliver) -> None:
        self._outlet.deliver(effect)
        one = self.machine.feeds.get(effect.feed)
        if self._traces is not None and one is not None:
            self._traces.delivered(effect, one.feed.stream)

    def _tell_lost(self, loss: TellLost) -> None:
        if self._outlet.is_open:
            self._outlet.tell_lost(loss)
