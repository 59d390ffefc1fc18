"""A topic is deleted on a disk that has no place for one more file: nothing happens."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.small_disk import SmallDisk
from tests.process.nodes import NodeProcess
from tests.process.small_disk import NodeInside, made_disk

import moorline
from moorline.client.moor import Moor
from moorline.errors import NodeDiskFull

pytestmark = pytest.mark.process

FILES_MAX = 4_000
"""More than a node and its Postgres make."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with made_disk(tmp_path / "disk", FILES_MAX) as made:
        yield made


async def retained(moor: Moor) -> list[bytes]:
    """What a new subscriber is told at once, as far as the message behind it."""
    subscription = await moor.subscribe("t/#")
    await moor.publish("t/end", b"end")
    found: list[bytes] = []
    async for message in subscription:
        if message.is_retained:
            found.append(message.body)
        else:
            await message.ack()
            break
    await subscription.close()
    return found


def test_a_refused_deletion_has_changed_nothing(disk: SmallDisk, tmp_path: Path) -> None:
    async def scenario(node: NodeProcess) -> None:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await moor.publish("t/a", b"first")
            await moor.publish("t/a", b"kept", retain=True)
            disk.fill_files()
            with pytest.raises(NodeDiskFull, match="no room for the list"):
                await moor.delete_topic("t/a")
            assert await moor.topics("t/a") == [("t/a", 2)]
            assert await retained(moor) == [b"kept"]
            disk.empty_files()
            assert (await moor.delete_topic("t/a")).messages == 2
            assert await moor.topics("t/a") == []
            assert await retained(moor) == []

    with NodeInside(disk, tmp_path / "node") as node:
        asyncio.run(scenario(node))
    left = [path.name for path in (disk.outside / "data" / "streams").iterdir()]
    assert "deleted" in left
    assert not [name for name in left if name.endswith(".new")]
