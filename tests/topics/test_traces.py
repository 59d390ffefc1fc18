"""What of the traced deliveries of a session is acknowledged, and what it costs to find that."""

import asyncio

import pytest
from tests.journal.streams.lives import BYTES_MAX, one_shard

from moorline.config.trace import Trace
from moorline.core.delivery.effects import Deliver
from moorline.core.delivery.feed import Feed
from moorline.core.delivery.open_feed import OpenFeed, Window
from moorline.core.delivery.progress import Cursor
from moorline.core.frames.block import Block
from moorline.core.ranges import Range
from moorline.core.stream import Stream
from moorline.net.span_export import SpanExport
from moorline.topics.traces import DeliveryTraces, MessageTraces

FEED = 7
STREAM = Stream("n1", 0, 1)


class Counted(int):
    """A number of a range, which counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)


def block_of(count: int) -> Block:
    lives = one_shard()
    for _ in range(count):
        lives.store.append("t", b"body", None, b"", 0, 0)
    lives.commit()
    block = lives.store.read(0, 1, 0, BYTES_MAX)
    assert isinstance(block, Block)
    return block


def delivered(count: int) -> tuple[MessageTraces, DeliveryTraces]:
    """The first messages of a shard, all of them traced, and out."""
    block = block_of(count)
    traces = MessageTraces(SpanExport(Trace(endpoint="http://127.0.0.1:1/"), {}), "n1", 1)
    out = DeliveryTraces(traces)
    out.delivered(Deliver(1, FEED, bytes(block.data), [], block.upto), STREAM)
    assert traces.in_flight == count
    return traces, out


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ([(3, 4)], 9),
        ([(3, 4), (3, 4), (2, 5)], 7),
        ([(8, 1 << 60), (5, 9)], 5),
        ([(9, 1), (1 << 60, 5), (7, 7)], 10),
        ([(0, 1 << 62), (1 << 62, 0)], 0),
        ([], 10),
    ],
)
def test_what_is_acknowledged_is_out_no_more(ranges: list[Range], left: int) -> None:
    traces, out = delivered(10)
    out.acked(FEED, ranges)
    assert traces.in_flight == left
    out.acked(FEED + 1, [(0, 10)])
    assert traces.in_flight == left
    out.close()
    assert traces.in_flight == 0


@pytest.mark.parametrize("width", [1, 1 << 40])
def test_many_ranges_are_not_compared_with_each_message(width: int) -> None:
    traces, out = delivered(500)
    # None of them is out: a client may say so as often as it likes.
    far = [(Counted(1_000 + 2 * n), Counted(1_000 + 2 * n + width)) for n in range(500)]
    Counted.compared = 0
    out.acked(FEED, list(far))
    assert traces.in_flight == 500
    assert Counted.compared < 40 * 500, "not each with each, which would be 250,000"


async def test_what_is_acknowledged_while_it_is_looked_at_is_out_no_more() -> None:
    """Two looks at once, of which the one that began last ends first."""
    block = block_of(10)
    export = SpanExport(Trace(endpoint="http://127.0.0.1:1/"), {})
    traces = MessageTraces(export, "n1", 1)
    out = DeliveryTraces(traces)
    one = OpenFeed(Feed(FEED, 1, STREAM, Cursor(0)), Window(1, "#", 10, 1))
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    looks = []
    for ranges, read in ([(0, 5)], first), ([(5, 10)], second):

        async def reading(_: Stream, __: int, read: asyncio.Future[Block] = read) -> Block:
            return await read

        looks.append(asyncio.create_task(out.pulled(one, ranges, reading)))
    await asyncio.sleep(0)
    out.acked(FEED, [(5, 7), (100, 1 << 40)])
    second.set_result(block)
    await looks[1]
    assert traces.in_flight == 3
    out.acked(FEED, [(0, 4)])
    first.set_result(block)
    await looks[0]
    assert traces.in_flight == 4
    out.close()
    assert traces.in_flight == 0
