"""A topic that is deleted is gone at all nodes, whichever was asked, and whoever reads from where."""

import asyncio
import signal

import pytest
from tests.cluster.running import Nodes
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.errors import HomeAway

pytestmark = pytest.mark.process


async def bodies(moor: Moor, filter_text: str, last: bytes) -> list[bytes]:
    """All that a reader from the beginning gets before the one that is said to be the last."""
    found: list[bytes] = []
    subscription = await moor.subscribe(filter_text, start="beginning")
    async with asyncio.timeout(20):
        async for message in subscription:
            await message.ack()
            found.append(message.body)
            # Shards and nodes come in any order: each has a last one.
            if sum(body.startswith(last) for body in found) == 2:
                break
    await subscription.close()
    return [body for body in found if not body.startswith(last)]


async def test_a_topic_goes_at_all_nodes_and_is_read_at_none(nodes: Nodes) -> None:
    first, second = await nodes.start("a", "b")
    async with (
        moorline.connect(first.address, reconnect=False) as one,
        moorline.connect(second.address, reconnect=False) as other,
    ):
        for number, moor in enumerate((one, other)):
            await moor.publish("t/gone", b"gone %d" % number)
            await moor.publish("t/stays", b"stays %d" % number)
        told = await one.delete_topic("t/gone")
        assert (told.messages, told.left) == (2, [])
        for number, moor in enumerate((one, other)):
            assert await moor.topics("t/gone") == []
            await moor.publish("t/gone", b"end %d" % number)
        for moor in (one, other):
            assert sorted(await bodies(moor, "t/gone", b"end")) == []
            assert sorted(await bodies(moor, "t/#", b"end")) == [b"stays 0", b"stays 1"]
        assert await bodies(one, "$queue/late/t/gone", b"end") == []
        assert await bodies(other, "$shared/late/t/gone", b"end") == []


async def test_nothing_is_deleted_while_a_node_is_away(nodes: Nodes) -> None:
    first, second = await nodes.start("a", "b")
    async with moorline.connect(second.address, reconnect=False) as other:
        await other.publish("t", b"at the other")
    second.signal(signal.SIGKILL)
    await asyncio.to_thread(second.process.wait, 30)
    async with moorline.connect(first.address, reconnect=False) as moor:
        await moor.publish("t", b"here")

        async def is_refused() -> bool:
            try:
                await moor.delete_topic("t")
            except HomeAway as error:
                return "nothing was deleted" in str(error)
            raise AssertionError("it was deleted while a node was away")

        await until(is_refused)
        assert await moor.topics("t") == [("t", 1)]
        told = await moor.delete_topic("t", force=True)
        assert told.messages == 1
        assert [home for home, _ in told.left] == ["b"]
        assert await moor.topics("t") == []
