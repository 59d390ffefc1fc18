"""One topic of a hundred of another node's sealed stream: it comes whole, and no other is read."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.cluster.running import PATIENT, Nodes
from tests.waiting import until

import moorline
from moorline.journal.streams.generation import SEAL, SEGMENT
from moorline.limits import PICK_ELSEWHERE_MESSAGES_MIN

pytestmark = pytest.mark.process

COUNT = PICK_ELSEWHERE_MESSAGES_MIN + 1_000
SETTINGS = PATIENT | {"streams.shards": 1, "streams.generation_bytes_max": 400_000}


def body(number: int) -> bytes:
    return b"body %06d of a hundred topics that take turns" % number


@pytest_asyncio.fixture
async def address(nodes: Nodes) -> AsyncIterator[str]:
    """The address of b; a has two streams, the first of which is sealed, and in it a message is damaged."""
    (a,) = await nodes.start("a", settings=SETTINGS)
    async with moorline.connect(a.address, reconnect=False) as moor:
        for first in (0, COUNT):
            await moor.publish_all(
                [moorline.record(f"t/{n % 100}", body(n)) for n in range(first, first + COUNT)]
            )
    folder = a.data / "streams" / "000"
    await until((folder / f"00000001{SEAL}").exists, what="the first stream is sealed")
    # Behind a start nothing is in memory: all is read from the files.
    assert await asyncio.to_thread(a.stop) == 0
    path = folder / f"00000001{SEGMENT}"
    whole = path.read_bytes()
    damaged = whole.replace(body(1_234), body(1_234).upper())
    assert damaged != whole
    path.write_bytes(damaged)
    _, b = await nodes.start("a", "b", settings=SETTINGS)
    yield b.address


async def read_all(address: str, name: str, window: int, count: int) -> tuple[list[bytes], bool]:
    """What comes of a subscription, and whether it was told that something is lost."""
    got: list[bytes] = []
    async with moorline.connect(address, reconnect=False) as moor, asyncio.timeout(30):
        subscription = await moor.subscribe(name, start="beginning", window=window)
        while len(got) < count:
            message = await anext(subscription)
            got.append(message.body)
            await message.ack()
    lost = [(one.first, one.upto) for one in subscription.lost]
    assert lost in ([], [(1_234, 1_235)])
    return got, bool(lost)


async def test_a_reader_of_one_topic_gets_it_and_nothing_else_is_read(address: str) -> None:
    """Of another topic's message it does not hear that it is damaged; whoever reads everything does."""
    wanted = [body(n) for n in range(2 * COUNT) if n % 100 == 7]
    for name, window in (("t/7", 7), ("t/7", 10_000), ("+/7", 100), ("$shared/g/t/7", 50)):
        assert await read_all(address, name, window, len(wanted)) == (wanted, False)
    got, is_lost = await read_all(address, "t/#", 1_000, 2 * COUNT - 1)
    assert set(got) == {body(n) for n in range(2 * COUNT) if n != 1_234}
    assert is_lost
