"""Staged commits on a real node: a batch is published once, however often it is written."""

import asyncio

import pytest
from tests.process.nodes import NodeProcess
from tests.staging.staged_writes import Rows, aborted, committed, published, staged
from tests.waiting import until

import moorline
from moorline.client.moor import Moor
from moorline.errors import (
    BadTopic,
    CallFailed,
    NotFound,
    TooLarge,
)
from moorline.ids import id_of
from moorline.wire.staging import (
    QUEUES,
    OpenStage,
    QueueRow,
    RowsStaged,
    StageOpened,
    StageRows,
)
from moorline.wire.topic import Record

pytestmark = pytest.mark.process


async def test_rows_are_seen_after_the_commit_and_not_before(
    moor: Moor, name: str, query: str
) -> None:
    rows: Rows = [Record(name, b"a", b"k", [("h", b"1")], 60), Record(name, b"b", b"k")]
    stage = await staged(moor, query, 0, 0, [rows])
    assert await published(moor, name) == []
    answer = await committed(moor, query, 0, [stage])
    assert (answer.already, answer.published, answer.refused) == (False, 2, [])
    assert await published(moor, name) == [(b"k", b"a"), (b"k", b"b")]


async def test_a_batch_is_published_once_however_often_it_is_written(
    moor: Moor, name: str, query: str
) -> None:
    first = await staged(moor, query, 5, 0, [[Record(name, b"first")]])
    second_attempt = await staged(moor, query, 5, 0, [[Record(name, b"first")]])
    assert not (await committed(moor, query, 5, [first])).already
    assert (await committed(moor, query, 5, [first])).already, "the answer was lost"
    assert (await committed(moor, query, 5, [second_attempt])).already, "the batch was replayed"
    older = await staged(moor, query, 4, 0, [[Record(name, b"older")]])
    answer = await committed(moor, query, 4, [older])
    assert (answer.already, answer.last) == (True, 5)
    following = await staged(moor, query, 6, 0, [[Record(name, b"second")]])
    assert not (await committed(moor, query, 6, [following])).already
    assert await published(moor, name) == [(None, b"first"), (None, b"second")]


async def test_a_publisher_of_the_same_name_takes_nobodys_place(
    moor: Moor, name: str, query: str
) -> None:
    """The name that a publisher gives itself may look like a partition of a query."""
    own = [moorline.record(name, b"its own")]
    await moor.publish_all(own, producer=f"{query}/0", sequence=1 << 40)
    stage = await staged(moor, query, 0, 0, [[Record(name, b"%d" % row) for row in range(5)]])
    assert (await committed(moor, query, 0, [stage])).published == 5
    assert len(await published(moor, name)) == 6


async def test_a_commit_of_nothing_moves_no_fence(moor: Moor, name: str, query: str) -> None:
    with pytest.raises(CallFailed, match="at least one stage"):
        await committed(moor, query, 1_000_000, [])
    stage = await staged(moor, query, 0, 0, [[Record(name, b"row")]])
    assert not (await committed(moor, query, 0, [stage])).already


async def test_the_nodes_own_queue_is_not_listed(node: NodeProcess, moor: Moor, query: str) -> None:
    queue = await moor.create_queue()
    rows: Rows = [QueueRow(queue.id, b"ahoy")]
    stage = await staged(moor, query, 0, 0, [rows], target=QUEUES)
    assert (await committed(moor, query, 0, [stage])).published == 1
    listed: list[tuple[bytes, int]] = []
    after = b""
    while page := (await moor.list_queues(after, 2)).queues:
        listed += page
        after = page[-1][0]
    assert (queue.id, 1) in listed
    own = id_of((node.data / "staging" / "notes.queue").read_text())
    assert own not in {one for one, _ in listed}


async def test_two_drivers_of_a_query_commit_a_batch_once(
    moor: Moor, name: str, query: str
) -> None:
    stages = [await staged(moor, query, 0, 0, [[Record(name, b"row")]]) for _ in range(4)]
    answers = await asyncio.gather(*(committed(moor, query, 0, [stage]) for stage in stages))
    assert sorted(answer.already for answer in answers) == [False, True, True, True]
    assert await published(moor, name) == [(None, b"row")]


async def test_abort_removes_stages_and_undoes_nothing(moor: Moor, name: str, query: str) -> None:
    wasted = await staged(moor, query, 0, 0, [[Record(name, b"wasted")]])
    assert await aborted(moor, query, 0, [wasted]) == 1
    with pytest.raises(NotFound):
        await committed(moor, query, 0, [wasted])
    stage = await staged(moor, query, 0, 0, [[Record(name, b"row")]])
    await committed(moor, query, 0, [stage])
    assert await aborted(moor, query, 0, [stage]) == 0
    assert await published(moor, name) == [(None, b"row")]


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        (Record("orders/+", b""), BadTopic, "orders/"),
        (Record("orders/eu", b"x" * 300_000), TooLarge, "300000 bytes for the topic 'orders/eu'"),
        (Record("orders/eu", b"", None, [("h", b"x" * 20_000)]), TooLarge, "orders/eu"),
        (Record("orders/eu", b"", b"k" * 2_000), TooLarge, "2000 bytes for the topic 'orders/eu'"),
    ],
)
async def test_a_row_that_cannot_be_published_refuses_its_stage(
    moor: Moor, query: str, row: Record, error: type[CallFailed], text: str
) -> None:
    with pytest.raises(error, match=text):
        await staged(moor, query, 0, 0, [[Record("fine", b"")], [row]])


async def test_a_stage_ends_with_its_session(node: NodeProcess, query: str) -> None:
    folder = node.data / "staging" / "stages"
    before = set(folder.iterdir())
    async with moorline.connect(node.address, reconnect=False) as moor:
        await moor._caller.call(lambda n: OpenStage(n, query, 0, 0, 0), StageOpened)
        await until(lambda: set(folder.iterdir()) != before)
    await until(lambda: set(folder.iterdir()) == before)


async def test_a_stage_is_written_by_the_session_that_opened_it(
    node: NodeProcess, moor: Moor, query: str
) -> None:
    opened = await moor._caller.call(lambda n: OpenStage(n, query, 0, 0, 0), StageOpened)
    async with moorline.connect(node.address, reconnect=False) as other:
        with pytest.raises(NotFound):
            await other._caller.call(lambda n: StageRows(n, opened.stage, b"\x90"), RowsStaged)
