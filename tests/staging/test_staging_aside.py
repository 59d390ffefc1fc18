"""Commits with a topic for rows that queues refuse: those are there once, the others in their queues once."""

from pathlib import Path

import pytest
from tests.staging.staged_writes import (
    QUEUES_MADE,
    KilledNode,
    by_key,
    committed,
    keyed_rows,
    published,
    queue_contents,
    queue_stages,
    queues_of,
    staged,
    waiting_in,
    was_killed,
)

import moorline
from moorline.client.moor import Moor
from moorline.errors import BadTopic, CallFailed, ConnectionLost, NotFound
from moorline.ids import text_of

pytestmark = pytest.mark.process


async def test_rows_of_a_deleted_queue_go_aside_and_are_counted(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, QUEUES_MADE)
    expected = queue_contents(ids)
    stages = await queue_stages(moor, query, ids)
    await moor.queue(ids[1]).delete()
    # Without a topic for them they fail the batch, as ever.
    with pytest.raises(NotFound, match="takes no messages"):
        await committed(moor, query, 0, stages)
    aside = f"{query}/aside"
    answer = await committed(moor, query, 0, stages, aside)
    assert (answer.published, answer.aside) == (20 * (QUEUES_MADE - 1), 20)
    assert answer.refused == [(text_of(ids[1]), "NOT_FOUND", 20)]
    for one in (0, 2, 3):
        assert await waiting_in(moor, ids[one]) == expected[ids[one]]
    assert await published(moor, aside) == [(ids[1], body) for body in expected[ids[1]]]
    # Said again, by whomever: nothing.
    assert (await committed(moor, query, 0, stages, aside)).already
    assert len(await published(moor, aside)) == 20

    subscription = await moor.subscribe(aside, start="beginning")
    async for message in subscription:
        assert dict(message.headers) == {
            "dead-reason": b"NOT_FOUND",
            "dead-queue": text_of(ids[1]).encode(),
            "dead-query": query.encode(),
            "dead-batch": b"0",
        }
        break
    await subscription.close()


async def test_what_a_full_queue_refuses_goes_aside(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, 2)
    expected = queue_contents(ids)
    stages = await queue_stages(moor, query, ids)
    for _ in range(128 - 15):
        await moor.send(ids[1], b"before")
    answer = await committed(moor, query, 0, stages, f"{query}/aside")
    assert (answer.published, answer.aside) == (35, 5)
    assert answer.refused == [(text_of(ids[1]), "QUOTA", 5)]
    assert await waiting_in(moor, ids[0]) == expected[ids[0]]
    assert (await waiting_in(moor, ids[1]))[128 - 15 : 128] == expected[ids[1]][:15]
    assert [body for _, body in await published(moor, f"{query}/aside")] == expected[ids[1]][15:]


async def test_a_topic_that_is_none_and_rows_for_topics_are_refused(
    moor: Moor, query: str, name: str
) -> None:
    ids = await queues_of(moor, 2)
    stages = await queue_stages(moor, query, ids)
    with pytest.raises(BadTopic, match="wildcard"):
        await committed(moor, query, 0, stages, "aside/#")
    other = [await staged(moor, f"{query}-2", 0, 0, keyed_rows(name)[0])]
    with pytest.raises(CallFailed, match="they are for queues"):
        await committed(moor, f"{query}-2", 0, other, "aside")
    assert [await waiting_in(moor, one) for one in ids] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "after:decide:1",
        "before:log:1",
        "after:log:1",
        "before:write:1",
        "after:write:1",
        "before:log:2",
        "after:log:2",
        "before:write:3",
        "after:write:3",
        "after:log:5",
        "before:complete:1",
        "after:complete:1",
    ],
)
async def test_a_kill_at_every_point_puts_no_row_aside_twice_and_loses_none(
    tmp_path: Path, point: str
) -> None:
    flags = ("--set=streams.shards=4",)
    with KilledNode(tmp_path / "data", point, *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            ids = await queues_of(moor, QUEUES_MADE)
            expected = queue_contents(ids)
            stages = await queue_stages(moor, "q", ids)
            for gone in (1, 3):
                await moor.queue(ids[gone]).delete()
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 0, stages, "aside")
        assert was_killed(node)
    with KilledNode(tmp_path / "data", "never", *flags) as node:
        async with moorline.connect(node.address, reconnect=False) as moor:
            await committed(moor, "q", 0, stages, "aside")
            for kept in (0, 2):
                assert await waiting_in(moor, ids[kept]) == expected[ids[kept]]
            assert by_key(await published(moor, "aside")) == {
                ids[gone]: expected[ids[gone]] for gone in (1, 3)
            }
