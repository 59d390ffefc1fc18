"""Room: spark. One member of a shared group: it holds streams, takes ranges of them, and acknowledges those.

The connection lives on a loop in a thread, which also answers pings while a batch runs. One that is lost is
made anew, as another member: what was taken and not acknowledged then comes again. What of that is known to
be complete is acknowledged at once, and not given out a second time.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial

from moorline.core.ranges import Range, Ranges
from moorline.core.stream import Extent, Shard, Stream
from moorline.errors import ConnectionLost, SubscriptionEnded, Untrusted
from moorline.limits import (
    SPARK_COMPLETE_KEPT_MS,
    SPARK_FIRST_MOMENT_MS_MAX,
    SPARK_FIRST_STREAM_MS_MAX,
    SPARK_LINK_PAUSE_MS,
    SPARK_LINK_TRIES,
)
from moorline.net.caller import Caller
from moorline.net.pages import described_group
from moorline.spark.node_link import Links
from moorline.spark.options import Endpoint, Offsets
from moorline.spark.planning import ShardGap
from moorline.wire.message import Failed, Message
from moorline.wire.pull import MessagesTaken, TakeMessages
from moorline.wire.stream_file import ClusterDescribed, DescribeCluster
from moorline.wire.topic import (
    AckMessages,
    ConfirmLost,
    FeedBegun,
    FeedEnded,
    FeedStopping,
    MessagesLost,
    SubscribeTopic,
    TopicSubscribed,
    TopicSubscriptionEnded,
)

log = logging.getLogger("moorline.spark")

Taken = dict[Stream, list[Range]]

ALL = (1 << 63) - 1
"""As many messages as there are."""


class Held:
    """A stream that is ours."""

    __slots__ = ("at", "is_stopping", "number", "stream")

    def __init__(self, number: int, stream: Stream) -> None:
        self.number = number
        self.stream = stream
        self.at = 0
        """Below it everything is taken or done."""
        self.is_stopping = False


class GroupMember(Links):
    """What is named without `_` is for the thread of Spark; everything else happens on the loop."""

    def __init__(self, endpoint: Endpoint, group: str, start: str) -> None:
        super().__init__(endpoint)
        self._group = group
        self._start = start
        self._addresses: tuple[str, ...] = (endpoint.address,)
        self._caller: Caller | None = None
        self._joined_ms = 0
        self._held: dict[int, Held] = {}
        self._first = asyncio.Event()
        self._complete: dict[Stream, Ranges] = {}
        self._forget_ms: dict[Stream, int] = {}
        self._lost: list[ShardGap] = []
        self._ended = ""
        self._turn = 0

    def join(self) -> None:
        """Becomes a member, if it is none."""
        self.run(self._join())

    def held(self) -> dict[Stream, int]:
        """The streams that are ours, each with the offset below which everything is taken or done."""

        async def found() -> dict[Stream, int]:
            return {one.stream: one.at for one in self._held.values()}

        return self.run(found())

    def wait_for_first(self) -> None:
        """A new member has no stream for a moment; a query with long triggers should not begin with none."""
        self.run(self._wait_for_first())

    def finish(self, ranges: Mapping[Stream, Iterable[Range]]) -> None:
        """These are complete: they are acknowledged, now or when their stream is ours again."""
        self.run(self._finish(ranges))

    def take(self, ends: Mapping[Stream, int], count_max: int) -> Taken:
        """What there is below these ends in the streams that are ours, at most so many messages."""
        return self.run(self._take(ends, count_max))

    def lost(self) -> list[ShardGap]:
        """What was gone before it could be taken, as far as it was not told yet."""

        async def told() -> list[ShardGap]:
            lost, self._lost = self._lost, []
            return lost

        return self.run(told())

    def is_settled(self, goal: Offsets) -> bool:
        """Whether everything below the goal is done, or another member's."""
        return self.run(self._is_settled(goal))

    # --- the connection ---------------------------------------------------------------------------

    async def _join(self) -> Caller:
        tries = 0
        while True:
            if self._ended:
                raise SubscriptionEnded(self._ended)
            if self._caller is not None and not self._caller.lost.done():
                return self._caller
            try:
                return await self._subscribe()
            except Untrusted:
                raise
            except ConnectionLost:
                tries += 1
                if tries >= SPARK_LINK_TRIES:
                    raise
                await asyncio.sleep(SPARK_LINK_PAUSE_MS / 1_000)

    async def _subscribe(self) -> Caller:
        caller = await self._link(self._addresses)
        self._held.clear()
        self._first.clear()
        caller.pushed = partial(self._pushed, caller)
        self._caller = caller
        try:
            await caller.call(
                lambda call: SubscribeTopic(call, self._group, start=self._start, hold=True),
                TopicSubscribed,
            )
            told = await caller.call(DescribeCluster, ClusterDescribed)
        except BaseException:
            self._caller = None
            caller.close("DONE", "not subscribed")
            raise
        others = [address for _, addresses, _ in told.nodes for address in addresses]
        # Should the node that was named go away, any other will do.
        self._addresses = tuple(dict.fromkeys([self._addresses[0], *others]))
        self._joined_ms = _now_ms()
        return caller

    async def _wait_for_first(self) -> None:
        left_ms = self._joined_ms + SPARK_FIRST_MOMENT_MS_MAX - _now_ms()
        if not self._held and left_ms > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1_000):
                    await self._first.wait()

    def _pushed(self, caller: Caller, messages: list[Message]) -> None:
        if caller is not self._caller:
            return
        for message in messages:
            match message:
                case FeedBegun(feed, _, node, shard, generation):
                    self._held[feed] = Held(feed, Stream(node, shard, generation))
                    self._first.set()
                case FeedStopping(feed):
                    if feed in self._held:
                        self._held[feed].is_stopping = True
                case FeedEnded(feed):
                    self._over(feed)
                case MessagesLost(_, node, shard, first, upto, reason, feed):
                    self._lost.append(ShardGap(str(Shard(node, shard)), first, upto, reason))
                    caller.send(ConfirmLost(feed, [(first, upto)]))
                case TopicSubscriptionEnded(_, code):
                    self._ended = code
                case _:
                    log.debug("a push for nobody", extra={"kind": type(message).__name__})

    def _over(self, feed: int) -> None:
        """A stream was given up on a connection that lives: the node has what we acknowledged of it. So when
        it is ours again and some of that comes again, an operator has sought the group back."""
        held = self._held.pop(feed, None)
        if held is not None:
            self._complete.pop(held.stream, None)
            self._forget_ms.pop(held.stream, None)

    # --- acknowledging ----------------------------------------------------------------------------

    async def _finish(self, ranges: Mapping[Stream, Iterable[Range]]) -> None:
        for stream, several in ranges.items():
            complete = self._complete.setdefault(stream, Ranges())
            for first, upto in several:
                complete.add(first, upto)
        for held in self._held.values():
            if held.stream in ranges:
                self._ack(held, list(ranges[held.stream]))

    def _ack(self, held: Held, ranges: list[Range]) -> None:
        """The node takes it for what we have taken of this feed, and for nothing else."""
        if self._caller is None or self._caller.lost.done():
            return
        if ranges:
            self._caller.send(AckMessages(held.number, ranges))
        self._forget_ms[held.stream] = _now_ms() + SPARK_COMPLETE_KEPT_MS

    def _forget_old(self) -> None:
        now_ms = _now_ms()
        for stream in [one for one, at_ms in self._forget_ms.items() if at_ms <= now_ms]:
            del self._forget_ms[stream]
            self._complete.pop(stream, None)

    # --- taking -----------------------------------------------------------------------------------

    async def _take(self, ends: Mapping[Stream, int], count_max: int) -> Taken:
        caller = await self._join()
        self._forget_old()
        taken: Taken = {}
        left, open_ends = count_max, dict(ends)
        try:
            while left and (asked := self._shares(open_ends, left)):
                for held, ranges in await self._ask_for(caller, asked, open_ends):
                    new = self._without_complete(held, ranges)
                    if new:
                        taken.setdefault(held.stream, []).extend(new)
                    if left != ALL:
                        left -= sum(upto - first for first, upto in new)
        except ConnectionLost as error:
            # What was taken is the group's again.
            log.warning("the group was left", extra={"group": self._group, "error": str(error)})
            return {}
        return taken

    def _shares(self, ends: Mapping[Stream, int], left: int) -> list[tuple[Held, int]]:
        """How many messages of each stream to ask for: all of them alike, and none is always the last."""
        able = [
            one
            for one in self._held.values()
            if not one.is_stopping and one.at < ends.get(one.stream, 0)
        ]
        if not able:
            return []
        self._turn = (self._turn + 1) % len(able)
        able = (able[self._turn :] + able[: self._turn])[:left]
        return [(one, left if left == ALL else left // len(able)) for one in able]

    async def _ask_for(
        self, caller: Caller, asked: list[tuple[Held, int]], open_ends: dict[Stream, int]
    ) -> list[tuple[Held, list[Range]]]:
        found: list[tuple[Held, list[Range]]] = []
        answers = await caller.call_all(
            [partial(_take_call, held, open_ends[held.stream], count) for held, count in asked]
        )
        for (held, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Failed):
                raise answer.error()
            assert isinstance(answer, MessagesTaken), type(answer).__name__
            if not answer.ranges and answer.upto <= held.at:
                # It is stopping, or its end is not known there yet: another time.
                del open_ends[held.stream]
            held.at = max(held.at, answer.upto)
            found.append((held, answer.ranges))
        return found

    def _without_complete(self, held: Held, ranges: list[Range]) -> list[Range]:
        complete = self._complete.get(held.stream)
        if not complete or not ranges:
            return ranges
        if ranges[0][0] < complete.first:
            # Everything below was done when these were taken: an operator has sought the group back.
            del self._complete[held.stream]
            return ranges
        done = [part for first, upto in ranges for part in complete.clip(first, upto)]
        self._ack(held, done)
        return [part for first, upto in ranges for part in complete.missing(first, upto)]

    # --- the end of a query that has one ----------------------------------------------------------

    async def _is_settled(self, goal: Offsets) -> bool:
        caller = await self._join()
        # A stream is granted when its member has said so, and ours says it behind the push of its feed: so
        # with the first answer we know of all that were ours by then.
        before = {str(one.stream.shard) for one in self._held.values()}
        told = await described_group(caller, self._group)
        # What was given up while the pages came is in a page as ours: it is nobody else's yet.
        ours = before | {str(one.stream.shard) for one in self._held.values()}
        waits_for_first = not ours and _now_ms() - self._joined_ms < SPARK_FIRST_STREAM_MS_MAX
        cursors = {str(Shard(one.node, one.shard)): one for one in told.cursors}
        for line, end in goal.items():
            cursor = cursors.get(line)
            if cursor is None:
                return False
            is_anothers = cursor.status == "granted" and line not in ours and not waits_for_first
            if cursor.offset < end and not is_anothers:
                return False
        return True


def ends_of(extents: Iterable[Extent], goal: Offsets | None) -> dict[Stream, int]:
    """How far each stream may be taken."""
    return {
        one.stream: one.end if goal is None else min(one.end, goal.get(str(one.stream.shard), 0))
        for one in extents
    }


def _take_call(held: Held, upto: int, count: int, call: int) -> Message:
    return TakeMessages(call, held.number, upto, count)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
