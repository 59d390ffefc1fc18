"""Staged commits on nodes that are killed in the middle of them, or come back with other shards."""

import asyncio
from pathlib import Path

import pytest
from tests.staging.staged_writes import (
    ROWS,
    KilledNode,
    by_key,
    committed,
    expected,
    keyed_rows,
    published,
    staged,
    was_killed,
)
from tests.topics.scenes import SMALL
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.errors import (
    ConnectionLost,
)
from moorline.wire.staging import (
    OpenStage,
    StageOpened,
)
from moorline.wire.topic import Record

pytestmark = pytest.mark.process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "is_decided"),
    [
        ("before:decide:1", False),
        ("after:decide:1", True),
        ("before:append:1", True),
        ("after:append:4", True),
        ("before:write:1", True),
        ("after:write:1", True),
        ("after:write:3", True),
        ("before:advance:2", True),
        ("after:advance:2", True),
        ("before:complete:1", True),
        ("after:complete:1", True),
    ],
)
async def test_topics_after_a_kill_at_every_point(
    tmp_path: Path, point: str, is_decided: bool
) -> None:
    partitions = keyed_rows("t")
    flags = ("--set=streams.shards=4",)
    with KilledNode(tmp_path / "data", point, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            stages = [
                await staged(moor, "q", 3, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    with KilledNode(tmp_path / "data", "never", *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            answer = await committed(moor, "q", 3, stages)
            assert answer.already is is_decided
            assert by_key(await published(moor, "t")) == expected(partitions)
            assert list((node.data / "staging" / "stages").iterdir()) == []
        assert "Traceback" not in node.errors, node.errors


@pytest.mark.slow
async def test_a_commit_that_is_killed_twice_goes_on_by_itself(tmp_path: Path) -> None:
    partitions = keyed_rows("t")
    data = tmp_path / "data"
    with KilledNode(data, "after:append:3", *SMALL) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            stages = [
                await staged(moor, "q", 0, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 0, stages)
        assert was_killed(node)
    with KilledNode(data, "never", *SMALL) as node:
        # No driver comes back: the start alone publishes the rest.
        async with moorline.connect(node.address, reconnect=False) as moor:
            while sum(dict(await moor.topics("t")).values()) < ROWS:
                await asyncio.sleep(0.01)
            await until(lambda: not list((data / "staging" / "stages").iterdir()))
            assert by_key(await published(moor, "t")) == expected(partitions)


async def shards_in_use(moor: Moor) -> int:
    """As a task is told them."""
    opened = await moor._caller.call(lambda n: OpenStage(n, "looks", 0, 0, 0), StageOpened)
    return opened.shards


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "shards"),
    [
        ("after:decide:1", 3),
        ("after:write:1", 3),
        ("after:write:3", 7),
        ("before:advance:2", 5),
        ("before:complete:1", 3),
    ],
)
async def test_another_number_of_shards_waits_for_a_commit_that_was_cut_short(
    tmp_path: Path, point: str, shards: int
) -> None:
    """With the new number at once, rows behind the last note would be published a second time."""
    partitions, data = keyed_rows("t"), tmp_path / "data"
    with KilledNode(data, point, "--set=streams.shards=4") as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            stages = [
                await staged(moor, "q", 3, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    waits = "streams.shards takes effect at the first start behind the end of a commit"
    with KilledNode(data, "never", f"--set=streams.shards={shards}") as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            assert await shards_in_use(moor) == 4
            assert (await committed(moor, "q", 3, stages)).already
            assert by_key(await published(moor, "t")) == expected(partitions)
        assert node.errors.count(waits) == 1
        assert f"set={shards}  now=4" in node.errors
    with KilledNode(data, "never", f"--set=streams.shards={shards}") as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            assert await shards_in_use(moor) == shards
            # Published as a start of its own and in other shards: still each once, and in order.
            following = await staged(moor, "q", 4, 0, [[Record("t", b"next", b"key")]])
            assert not (await committed(moor, "q", 4, [following])).already
            both = expected(partitions) | {b"key": [b"next"]}
            assert by_key(await published(moor, "t")) == both
        assert node.errors.count(waits) == 1
        assert "Traceback" not in node.errors, node.errors


@pytest.mark.slow
async def test_another_number_of_shards_counts_at_once_where_no_commit_is_decided(
    tmp_path: Path,
) -> None:
    partitions, data = keyed_rows("t"), tmp_path / "data"
    with KilledNode(data, "before:decide:1", "--set=streams.shards=4") as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            stages = [
                await staged(moor, "q", 3, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    with KilledNode(data, "after:write:2", "--set=streams.shards=3") as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            assert await shards_in_use(moor) == 3
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    # Staged for four shards, published in three up to the crash: so three it is, until all are out.
    with KilledNode(data, "never", "--set=streams.shards=4") as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            assert await shards_in_use(moor) == 3
            assert (await committed(moor, "q", 3, stages)).already
            assert by_key(await published(moor, "t")) == expected(partitions)
