"""Lists of what the catalog holds, longer than an answer can be."""

import asyncio

import pytest
from tests.cluster.running import Nodes

import moorline
from moorline.catalog import Catalog
from moorline.catalog.groups import Groups
from moorline.catalog.readers import CursorRow
from moorline.core.topic import Mode, SharedName
from moorline.errors import CallFailed, LimitReached
from moorline.limits import (
    GROUP_NAME_BYTES_MAX,
    GROUPS_PER_PAGE_MAX,
    SUBSCRIPTIONS_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from moorline.net.pages import described_group
from moorline.wire.group import DescribeGroup, GroupDescribed, GroupsListed, ListGroups

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
    async with moorline.connect(node.address, reconnect=False) as moor:
        assert [group.name for group in await moor.groups()] == sorted(map(str, names))
        # Whoever asks for all at once is told that they are too many, and not given a part of them.
        with pytest.raises(CallFailed, match="does not fit"):
            await moor._caller.call(ListGroups, GroupsListed)


@pytest.mark.slow
async def test_all_places_of_a_group_are_told_whoever_leads_it(nodes: Nodes) -> None:
    """As many as sixteen nodes with 1,024 shards have: without one member they are too many for a frame."""
    (node,) = await nodes.start("n1")
    name = SharedName(Mode.SHARED, "billing", "orders/#")
    cursors = [
        CursorRow(f"away-{place // 1_024}-".ljust(63, "x"), place % 1_024, place, b"", b"")
        for place in range(16 * 1_024)
    ]
    async with Catalog.open(nodes.dsn) as catalog:
        await Groups(catalog).declare(name, deliveries_max=1, start_us=0, cursors=cursors)
    expected = {(one.home, one.shard): one.offset for one in cursors}

    async with (
        moorline.connect(node.address, reconnect=False) as moor,
        moorline.connect(node.address, reconnect=False) as other,
    ):
        # From the catalog, and then from its Leader, with members.
        for members in (0, 2):
            for member in (moor, other)[:members]:
                await member.subscribe(str(name))
            async with asyncio.timeout(90):
                while len((told := await moor.group(str(name)).info()).members) != members:
                    await asyncio.sleep(0.01)
            keys = [(one.node, one.shard) for one in told.cursors]
            assert keys == sorted(keys)
            assert len(set(keys)) == len(keys)
            found = {key: one.offset for key, one in zip(keys, told.cursors, strict=True)}
            assert found.items() >= expected.items()
            if not members:
                away = {one.status for one in told.cursors if one.node.startswith("away-")}
                assert away == {"away"}, "what nobody tells of is not called free"
            with pytest.raises(CallFailed, match="does not fit"):
                await moor._caller.call(lambda n: DescribeGroup(n, str(name)), GroupDescribed)


async def test_pages_of_any_size_are_the_whole_group(nodes: Nodes) -> None:
    (node,) = await nodes.start("n1")
    name = "$shared/billing/orders/#"
    async with (
        moorline.connect(node.address, reconnect=False) as moor,
        moorline.connect(node.address, reconnect=False) as second,
        moorline.connect(node.address, reconnect=False) as third,
    ):
        for member in (moor, second, third):
            await member.subscribe(name)
        async with asyncio.timeout(90):
            while len((whole := await moor.group(name).info()).members) != 3:
                await asyncio.sleep(0.01)
        for count in (1, 2, 3, 100):
            told = await described_group(moor._caller, name, count)
            assert [(one.node, one.shard) for one in told.cursors] == [
                (one.node, one.shard) for one in whole.cursors
            ]
            assert [one.borrower for one in told.members] == [one.borrower for one in whole.members]


@pytest.mark.slow
async def test_a_session_with_all_that_it_may_have_is_opened_again(nodes: Nodes) -> None:
    (node,) = await nodes.start("n1")
    filters = [f"{number:04}/".ljust(TOPIC_BYTES_MAX, "f") for number in range(1_024)]
    room = SUBSCRIPTIONS_BYTES_MAX // TOPIC_BYTES_MAX
    async with moorline.connect(node.address, reconnect=False) as moor:
        assert await moor.session("wide") == []
        for one in filters[:room]:
            await moor.subscribe(one)
        with pytest.raises(LimitReached, match="at most 786432 bytes together"):
            await moor.subscribe(filters[room])
        await moor.subscribe(filters[0])
    async with moorline.connect(node.address, reconnect=False) as moor:
        resumed = await moor.session("wide")
        assert [one.filter for one in resumed] == filters[:room]
