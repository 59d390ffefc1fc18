"""Room: mqtt. The second outlet of delivery: blocks of frames become PUBLISHes of one buffer.

    block ─► Outgoing, as filters grant it ─► Outbound (ids, receive maximum, QoS 2) ─► PublishWriter

What has no room in the client's receive maximum waits here, and no more is read for it meanwhile: the window
of delivery bounds it. What the client answers goes to delivery by feed, gathered over one read.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from moorline.core.delivery.effects import Deliver, TellLost
from moorline.core.delivery.feed import Feed
from moorline.core.effects import Effect
from moorline.core.frames.frame import PRODUCER, QOS0, RETAIN, Stored, all_stored
from moorline.core.mqtt.effects import MessagePosition
from moorline.core.mqtt.outbound import Outbound, Outgoing
from moorline.core.mqtt.packets import NONE, Properties
from moorline.core.ranges import Range, Ranges
from moorline.core.stream import Stream
from moorline.mqtt.counts import Counts, NodeCounts
from moorline.mqtt.filters import Filters
from moorline.mqtt.headers import properties_of
from moorline.net.clock import wall_ms


class WriteSide(Protocol):
    """The connection, as far as it is written to."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_writable(self) -> bool: ...

    async def room_to_write(self) -> None: ...

    def flush(self) -> None:
        """What was said so far leaves at the end of this turn of the loop."""


class Member(msgspec.Struct, frozen=True):
    """A shared subscription, as its messages are sent."""

    source: str
    qos: int
    retain_as_published: bool
    identifiers: tuple[int, ...]


class _Source(msgspec.Struct):
    """A feed that is open."""

    stream: Stream
    subscription: int


class MqttOutlet:
    """Of one connection of a client."""

    __slots__ = (
        "_counts",
        "_done",
        "_feeds",
        "_filters",
        "_flush_due",
        "_loop",
        "_node_counts",
        "_outbound",
        "_over",
        "_own",
        "_perform",
        "_room",
        "_waiting",
        "_write_side",
        "ack",
        "confirm_lost",
        "members",
        "reject",
    )

    def __init__(
        self,
        write_side: WriteSide,
        filters: Filters,
        outbound: Outbound,
        own_producers: tuple[int, int],
        counts: Counts,
        node_counts: NodeCounts,
        perform: Callable[[Iterable[Effect]], None],
        over: Callable[[int, str], None],
    ) -> None:
        self._write_side = write_side
        self._filters = filters
        self._outbound = outbound
        self._own = own_producers
        self._counts, self._node_counts = counts, node_counts
        self._perform = perform
        self._over = over
        self._feeds: dict[int, _Source] = {}
        self._waiting: list[Outgoing] = []
        self._room: list[asyncio.Future[None]] = []
        self.members: dict[int, Member] = {}
        """Shared subscriptions by their number in the session."""
        self.ack: Callable[[int, list[Range]], None] = _nothing
        self.reject: Callable[[int, int], None] = _nothing
        self.confirm_lost: Callable[[int, list[Range]], None] = _nothing
        self._done: dict[int, Ranges] = {}
        self._flush_due = False
        self._loop = asyncio.get_running_loop()

    def use(self, outbound: Outbound) -> None:
        """Another one, restored from what was kept: before anything is delivered."""
        self._outbound = outbound

    # --- what delivery asks -----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._write_side.is_open

    @property
    def has_room(self) -> bool:
        return self.is_open and self._write_side.is_writable and not self._waiting

    @property
    def waiting(self) -> int:
        """Messages that wait for the client to answer others."""
        return len(self._waiting)

    async def room(self) -> None:
        while self.is_open and not self.has_room:
            if not self._write_side.is_writable:
                await self._write_side.room_to_write()
                continue
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room.append(waiter)
            await waiter

    def begin_feed(self, feed: Feed, qos: int) -> None:  # noqa: ARG002
        self._feeds[feed.number] = _Source(feed.stream, feed.subscription)

    def stop_feed(self, feed: Feed) -> None:
        """What is out is the client's to answer; what it never got goes back with its connection."""

    def end_feed(self, feed: Feed) -> None:
        self._feeds.pop(feed.number, None)
        self._done.pop(feed.number, None)

    def deliver(self, effect: Deliver) -> None:
        source = self._feeds[effect.feed]
        member = self.members.get(effect.subscription)
        found: list[Outgoing] = []
        passed = self._done.setdefault(effect.feed, Ranges())
        for stored in all_stored(effect.frames):
            one = (
                self._own_message(source, effect.feed, stored)
                if member is None
                else _shared_message(member, source, effect.feed, stored)
            )
            if one is None:
                passed.add(stored.offset, stored.offset + 1)
            else:
                found.append(one)
        if passed:
            self._flush_soon()
        self.send(found)

    def end_turn(self) -> None:
        self._write_side.flush()

    def tell_lost(self, effect: TellLost) -> None:
        """Nothing in MQTT says so: counted, and known."""
        count = effect.gap.upto - effect.gap.first
        self._counts.lost += count
        self._node_counts.lost += count
        self._perform(self._outbound.gone("", effect.stream.shard, effect.gap.upto))
        self._loop.call_soon(self.confirm_lost, effect.feed, [(effect.gap.first, effect.gap.upto)])

    def end_subscription(self, number: int, code: str) -> None:
        self._over(number, code)

    # --- messages ---------------------------------------------------------------------------------

    def _own_message(self, source: _Source, feed: int, stored: Stored) -> Outgoing | None:
        """None of what is not for the client after all."""
        shard = source.stream.shard
        granted = self._filters.granted_at(stored.topic, shard, stored.offset)
        if granted is None:
            return None
        if not granted.is_local_too and stored.flags & PRODUCER and stored.producer in self._own:
            return None
        return outgoing(
            stored,
            MessagePosition("", shard, stored.offset),
            feed,
            granted.qos,
            granted.identifiers,
            retain=bool(granted.retain_as_published and stored.flags & RETAIN),
        )

    def send(self, messages: Iterable[Outgoing]) -> None:
        """In this order, as far as there is room; the rest as there is."""
        self._waiting.extend(messages)
        self._send_waiting()

    def _send_waiting(self) -> None:
        waiting = self._waiting
        if not waiting:
            return
        room, count = self._outbound.room, 0
        for one in waiting:
            if one.qos:
                if not room:
                    break
                room -= 1
            count += 1
        if count:
            now, self._waiting = waiting[:count], waiting[count:]
            self._perform(self._outbound.deliver(now, wall_ms()))

    def go_on(self) -> None:
        """The client has answered something, or reads again."""
        self._send_waiting()
        if not self._waiting:
            waiters, self._room = self._room, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # --- what became of them ----------------------------------------------------------------------

    def done(self, places: Iterable[tuple[int, int]]) -> None:
        """(feed, offset) of what delivery need not think of any more; told to it together."""
        for feed, offset in places:
            if feed > 0:
                ranges = self._done.get(feed)
                if ranges is None:
                    ranges = self._done[feed] = Ranges()
                ranges.add(offset, offset + 1)
        self._flush_soon()

    def failed(self, feed: int, offset: int) -> None:
        """The client answered with an error: for a group it failed, for the client's own it is done."""
        source = self._feeds.get(feed)
        if source is None:
            return
        if source.subscription in self.members:
            self.reject(feed, offset)
        else:
            self.done([(feed, offset)])

    def close(self) -> None:
        self._waiting.clear()
        self.go_on()

    def flush(self) -> None:
        self._flush_due = False
        done, self._done = self._done, {}
        for feed, ranges in done.items():
            if ranges:
                self.ack(feed, list(ranges))

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)


def _nothing(_feed: int, _of_it: object) -> None:
    """There is no delivery yet that could hear of it."""


def outgoing(
    stored: Stored,
    position: MessagePosition,
    feed: int,
    qos: int,
    identifiers: tuple[int, ...],
    *,
    retain: bool,
) -> Outgoing:
    properties, own_qos = properties_of(stored.headers)
    if stored.flags & QOS0:
        own_qos = 0
    if identifiers:
        properties = with_identifiers(properties, identifiers)
    expires_at_ms = (stored.time_us // 1_000 + stored.ttl_s * 1_000) if stored.ttl_s else 0
    return Outgoing(
        position,
        feed,
        stored.topic,
        stored.body,
        min(own_qos, qos),
        retain,
        expires_at_ms,
        properties,
    )


def with_identifiers(properties: Properties, identifiers: tuple[int, ...]) -> Properties:
    if properties is NONE:
        return Properties(subscription_identifiers=identifiers)
    return msgspec.structs.replace(properties, subscription_identifiers=identifiers)


def _shared_message(member: Member, source: _Source, feed: int, stored: Stored) -> Outgoing:
    return outgoing(
        stored,
        MessagePosition(member.source, source.stream.shard, stored.offset),
        feed,
        member.qos,
        member.identifiers,
        retain=bool(member.retain_as_published and stored.flags & RETAIN),
    )
