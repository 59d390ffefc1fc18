"""Members that hold streams and take messages by themselves, on a real node beside others that do not."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.real_node import Connect
from tests.topics.scenes import (
    SHARDS,
    Reader,
    described,
    is_done,
    is_shared_by,
    numbered,
    publish_all,
)
from tests.waiting import until

from moorline.client.moor import Moor
from moorline.config.addresses import listen_address
from moorline.errors import BadTopic
from moorline.net.caller import Caller, open_caller
from moorline.wire.message import Message
from moorline.wire.pull import MessagesTaken, TakeMessages
from moorline.wire.topic import (
    AckMessages,
    FeedBegun,
    FeedEnded,
    FeedStopping,
    GiveBack,
    Messages,
    OpenSession,
    SessionOpened,
    SubscribeTopic,
    TopicSubscribed,
)

pytestmark = pytest.mark.process

FAR = 1 << 60


class Holder:
    """A member that holds: its feeds, and everything that was pushed."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.feeds: dict[int, FeedBegun] = {}
        self.stopping: set[int] = set()
        self.pushed: list[Message] = []
        caller.pushed = self._hear

    def _hear(self, messages: list[Message]) -> None:
        self.pushed += messages
        for message in messages:
            match message:
                case FeedBegun():
                    self.feeds[message.feed] = message
                case FeedStopping(feed):
                    self.stopping.add(feed)
                case FeedEnded(feed):
                    del self.feeds[feed]

    async def subscribe(self, group: str, *, hold: bool = True, qos: int = 1) -> None:
        await self.caller.call(
            lambda call: SubscribeTopic(call, group, start="beginning", qos=qos, hold=hold),
            TopicSubscribed,
        )

    async def take(self, feed: int, upto: int = FAR, count: int = FAR) -> MessagesTaken:
        return await self.caller.call(
            lambda call: TakeMessages(call, feed, upto, count), MessagesTaken
        )

    async def take_all(self) -> dict[int, list[tuple[int, int]]]:
        return {feed: (await self.take(feed)).ranges for feed in list(self.feeds)}

    def ack(self, taken: dict[int, list[tuple[int, int]]]) -> None:
        for feed, ranges in taken.items():
            self.caller.send(AckMessages(feed, ranges))


Hold = Callable[[], Awaitable[Holder]]


@pytest.fixture
async def hold(node: NodeProcess) -> AsyncIterator[Hold]:
    opened: list[Holder] = []

    async def one() -> Holder:
        caller = await open_caller(
            listen_address(node.address),
            lambda: Caller("test", hello_timeout_ms=5_000, keepalive_ms=60_000),
            timeout_ms=5_000,
        )
        opened.append(Holder(caller))
        return opened[-1]

    yield one
    for holder in opened:
        holder.caller.close("DONE", "the test is over")
        await holder.caller.gone


def count(taken: dict[int, list[tuple[int, int]]]) -> int:
    return sum(upto - first for ranges in taken.values() for first, upto in ranges)


async def test_feeds_come_and_no_messages(moor: Moor, hold: Hold, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create()
    await publish_all(moor, name, numbered(100))
    holder = await hold()
    await holder.subscribe(group)
    await until(lambda: len(holder.feeds) == SHARDS)
    taken = await holder.take_all()
    assert count(taken) >= 100, "with those of other topics between them"
    assert count(await holder.take_all()) == 0, "they are out already"
    before = await described(moor, group, lambda one: sum(p.pending for p in one.cursors) >= 100)
    assert not is_done(before)
    holder.ack(taken)
    await described(moor, group, is_done)
    assert not [one for one in holder.pushed if isinstance(one, Messages)]


async def test_no_more_is_taken_than_is_asked_for_and_stored(
    moor: Moor, hold: Hold, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create()
    await publish_all(moor, name, numbered(10), topics=1)
    holder = await hold()
    await holder.subscribe(group)
    await until(lambda: len(holder.feeds) == SHARDS)
    (feed,) = [
        one
        for one in holder.feeds
        if (await holder.take(one, FAR, 0)).upto < await _end(moor, holder.feeds[one])
    ]
    some = await holder.take(feed, count=4)
    ((first, upto),) = some.ranges
    assert (upto - first, some.upto) == (4, upto)
    rest = await holder.take(feed, upto + 3)
    assert (rest.ranges, rest.upto) == ([(upto, upto + 3)], upto + 3)
    end = await _end(moor, holder.feeds[feed])
    last = await holder.take(feed)
    assert (last.ranges, last.upto) == ([(upto + 3, end)], end), "what is not stored is nobody's"
    holder.caller.send(GiveBack(feed, [(first, first + 2)]))
    assert (await holder.take(feed)).ranges == [(first, first + 2)]


async def _end(moor: Moor, feed: FeedBegun) -> int:
    streams = (await moor.streams()).streams
    return next(
        one.end for one in streams if (one.shard, one.generation) == (feed.shard, feed.generation)
    )


async def test_a_stream_moves_when_what_is_out_is_acknowledged(
    connect: Connect, hold: Hold, name: str
) -> None:
    moor, other = await connect(), await connect()
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create()
    bodies = numbered(200)
    await publish_all(moor, name, bodies[:100])
    holder = await hold()
    await holder.subscribe(group)
    await until(lambda: len(holder.feeds) == SHARDS)
    taken = await holder.take_all()
    reader = Reader(await other.subscribe(group))
    await until(lambda: len(holder.stopping) == SHARDS // 2)
    await publish_all(moor, name, bodies[100:])
    for feed in holder.stopping:
        assert (await holder.take(feed)).ranges == [], "a feed that stops gives no more"
    assert reader.bodies == []
    holder.ack(taken)
    await until(lambda: len(holder.feeds) == SHARDS // 2)
    await described(moor, group, is_shared_by(2))
    taken = await holder.take_all()
    holder.ack(taken)
    await described(moor, group, is_done)
    assert set(reader.bodies) <= set(bodies[100:]), "of what was taken nothing came twice"
    assert max(Counter(reader.bodies).values()) == 1
    # And back, when the other goes.
    await reader.stop()
    await other.close()
    await until(lambda: len(holder.feeds) == SHARDS)
    assert count(await holder.take_all()) == 0


async def test_a_holder_that_dies_loses_nothing_and_blames_nobody(
    moor: Moor, hold: Hold, name: str
) -> None:
    group = f"$shared/{name}/{name}/#"
    await moor.group(group).create()
    bodies = numbered(60)
    await publish_all(moor, name, bodies)
    holder = await hold()
    await holder.subscribe(group)
    await until(lambda: len(holder.feeds) == SHARDS)
    await holder.take_all()
    holder.caller.abort()
    reader = Reader(await moor.subscribe(group))
    await reader.has(bodies)
    assert {message.deliveries for message in reader.got} == {1}
    await reader.stop()


@pytest.mark.parametrize("group", ["$queue/{}/{}/#", "{}/{}"])
async def test_only_streams_can_be_held(hold: Hold, name: str, group: str) -> None:
    holder = await hold()
    with pytest.raises(BadTopic, match=r"cannot be held: only a \$shared group"):
        await holder.subscribe(group.format(name, name))


async def test_a_subscription_is_held_or_not(hold: Hold, name: str) -> None:
    group = f"$shared/{name}/{name}/#"
    holder, plain, durable = await hold(), await hold(), await hold()
    await holder.subscribe(group)
    with pytest.raises(BadTopic, match="with another hold"):
        await holder.subscribe(group, hold=False)
    with pytest.raises(BadTopic, match="use qos 1"):
        await plain.subscribe(group, qos=0)
    await plain.subscribe(group, hold=False)
    await until(lambda: bool(plain.feeds))
    with pytest.raises(BadTopic, match="subscribe with hold"):
        await plain.take(next(iter(plain.feeds)))
    await durable.caller.call(lambda call: OpenSession(call, f"s-{name}", 60), SessionOpened)
    with pytest.raises(BadTopic, match="a durable session cannot hold"):
        await durable.subscribe(group)
    assert (await holder.take(999)).ranges == [], "a feed that is over gives nothing"
