"""F11: fifty groups of twenty members each read a thousand messages, over a thousand connections."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.scenes import described, is_done, metric, mistakes, numbered, publish_all
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.client.topic import Subscription

pytestmark = [pytest.mark.process, pytest.mark.slow]

GROUPS, MEMBERS, MESSAGES = 50, 20, 1_000
SHARDS = 32
AT_ONCE = 50


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """With more shards than a group has members; no pause of a busy machine is taken for a failure."""
    with NodeProcess(
        tmp_path_factory.mktemp("scale") / "data",
        f"--set=streams.shards={SHARDS}",
        "--set=streams.sync=process",
        "--set=groups.lease_ms=120000",
        "--set=groups.member_timeout_ms=120000",
        "--set=groups.revoke_ms=120000",
    ) as node:
        yield node
        assert mistakes(node) == []


async def read(subscription: Subscription, got: Counter[bytes]) -> None:
    async for batch in subscription.batches():
        got.update(message.body for message in batch.messages)
        await batch.ack()


async def test_f11_fifty_groups_of_twenty_members_see_each_message_once(
    node: NodeProcess, moor: Moor
) -> None:
    names = [f"$shared/g{number}/scale/#" for number in range(GROUPS)]
    gate = asyncio.Semaphore(AT_ONCE)
    members: list[Moor] = []
    got = {name: Counter[bytes]() for name in names}
    readers: list[asyncio.Task[None]] = []

    async def join(name: str) -> None:
        async with gate:
            member = await moorline.connect(node.address, reconnect=False)
            members.append(member)
            subscription = await member.subscribe(name)
        readers.append(asyncio.create_task(read(subscription, got[name])))

    await asyncio.gather(*(join(name) for name in names for _ in range(MEMBERS)))
    for name in names:
        found = await described(moor, name, lambda one: len(one.members) == MEMBERS)
        assert len(found.members) == MEMBERS
    bodies = numbered(MESSAGES)
    await publish_all(moor, "scale", bodies, topics=200)
    await until(lambda: all(len(one) == MESSAGES for one in got.values()), within_s=60)
    for name in names:
        await described(moor, name, is_done)
        assert got[name] == Counter(bodies), name
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*(member.close() for member in members))
    # Nothing is left of them.
    for figure in ("topic_sessions", "group_members"):
        while await metric(node.http, figure):
            await asyncio.sleep(0.01)
