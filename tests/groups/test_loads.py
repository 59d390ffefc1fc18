"""A group whose streams carry very different loads, with one real node: members exchange streams."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from tests.process.nodes import NodeProcess
from tests.topics.scenes import SMALL, Reader, described, is_done, is_shared_by, mistakes
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.wire.group import GroupDescribed

pytestmark = pytest.mark.process

GROUP = "$shared/g/load/#"
LOOKS = ("--set=groups.load_ms=200",)
PER_CALL = 100


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("loads") / "data", *SMALL, *LOOKS) as node:
        yield node
        assert mistakes(node) == []


def owners(group: GroupDescribed) -> dict[int, str]:
    return {cursor.shard: cursor.member for cursor in group.cursors}


async def topic_of_each_shard(moor: Moor) -> dict[int, str]:
    """A topic by which each shard is reached."""
    found: dict[int, str] = {}
    subscription = await moor.subscribe("load/#", start="beginning", qos=0)
    topics = [f"load/{number}" for number in range(64)]
    await moor.publish_all([moorline.record(topic, b"first") for topic in topics])
    for _ in topics:
        message = await anext(subscription)
        assert message.stream is not None
        found.setdefault(message.stream.shard_number, message.topic)
    await subscription.close()
    return found


async def test_two_hot_streams_of_one_member_are_shared_and_each_message_comes_once(
    node: NodeProcess,
) -> None:
    async with (
        moorline.connect(node.address) as moor,
        moorline.connect(node.address) as one,
        moorline.connect(node.address) as other,
    ):
        topics = await topic_of_each_shard(moor)
        readers = [Reader(await member.subscribe(GROUP)) for member in (one, other)]
        by_member = defaultdict(list)
        before = owners(await described(moor, GROUP, is_shared_by(2)))
        for shard, member in sorted(before.items()):
            by_member[member].append(shard)
        hot = min(by_member.values())
        assert len(hot) == 2
        said: list[bytes] = []
        is_shared = asyncio.Event()

        async def publish() -> None:
            while not is_shared.is_set():
                bodies = [b"%d" % (len(said) + number) for number in range(PER_CALL)]
                said.extend(bodies)
                await moor.publish_all(
                    [
                        moorline.record(topics[hot[number % 2]], body)
                        for number, body in enumerate(bodies)
                    ]
                )

        publishing = asyncio.create_task(publish())

        def is_by_load(group: GroupDescribed) -> bool:
            owner = owners(group)
            return is_shared_by(2)(group) and owner[hot[0]] != owner[hot[1]]

        after = owners(await described(moor, GROUP, is_by_load))
        moved = [shard for shard in before if before[shard] != after[shard]]
        assert len(moved) == 2, "one of the hot ones, for one of the others"
        assert len(set(moved) & set(hot)) == 1
        is_shared.set()
        await publishing
        await until(lambda: sum(len(reader.got) for reader in readers) >= len(said))
        await described(moor, GROUP, is_done)
        assert Counter(body for reader in readers for body in reader.bodies) == Counter(said)
