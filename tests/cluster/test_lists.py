"""Lists of what the catalog holds, longer than an answer can be."""

import asyncio

import pytest
from tests.cluster.running import Nodes

import moorline
from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.core.topic import Mode, SharedName
from moorline.errors import CallFailed
from moorline.limits import GROUP_NAME_BYTES_MAX, GROUPS_PER_PAGE_MAX, TOPIC_BYTES_MAX
from moorline.wire.group import GroupsListed, ListGroups

pytestmark = pytest.mark.process


async def test_all_groups_are_listed_however_long_their_names(nodes: Nodes) -> None:
    (node,) = await nodes.start("n1")
    names = [
        SharedName(mode, f"{number:0{GROUP_NAME_BYTES_MAX}}", "f" * TOPIC_BYTES_MAX)
        for mode in Mode
        for number in range(GROUPS_PER_PAGE_MAX)
    ]
    async with Catalog.open(nodes.dsn) as catalog:
        groups = Groups(catalog)
        await asyncio.gather(
            *(groups.declare(name, deliveries_max=1, start_us=0) for name in names)
        )
    async with moorline.connect(node.address) as moor:
        assert [group.name for group in await moor.groups()] == sorted(map(str, names))
        # Whoever asks for all at once is told that they are too many, and not given a part of them.
        with pytest.raises(CallFailed, match="does not fit"):
            await moor._caller.call(ListGroups, GroupsListed)
