"""Staged commits on real nodes: a batch is published once, whatever ends in the middle of it."""

import asyncio
import itertools
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import xxhash
from tests.groups.scenes import SMALL, until
from tests.process.nodes import NodeProcess, clean_environment

import moorline
from moorline.client.moor import Moor
from moorline.errors import (
    BadTopic,
    CallFailed,
    ConnectionLost,
    NotFound,
    QuotaExceeded,
    TooLarge,
)
from moorline.ids import id_of
from moorline.wire.packed_rows import packed
from moorline.wire.staging import (
    QUEUES,
    TOPICS,
    AbortStaged,
    CloseStage,
    CommitStaged,
    OpenStage,
    QueueRow,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
    StagesAborted,
    StagesCommitted,
    encode_queue_rows,
)
from moorline.wire.topic import Record

pytestmark = pytest.mark.process

NUMBERS = itertools.count(1)
Stage = tuple[bytes, int, bytes]
Rows = list[Record] | list[QueueRow]

PARTITIONS, CHUNKS, CHUNK_ROWS = 3, 6, 20
ROWS = PARTITIONS * CHUNKS * CHUNK_ROWS
QUEUES_MADE = 4


@pytest.fixture
def query() -> str:
    return f"query-{next(NUMBERS)}"


def encoded_rows(rows: Rows, shards: int) -> bytes:
    for_queues = [row for row in rows if isinstance(row, QueueRow)]
    if for_queues:
        return encode_queue_rows(for_queues)
    return packed([row for row in rows if isinstance(row, Record)], shards).encoded()


async def staged(
    moor: Moor,
    query: str,
    batch: int,
    partition: int,
    chunks: list[Rows],
    *,
    target: int = TOPICS,
) -> Stage:
    """What a task does."""
    call = moor._caller.call
    opened = await call(lambda n: OpenStage(n, query, batch, partition, 0, target), StageOpened)
    name = opened.stage
    encoded = [encoded_rows(rows, opened.shards) for rows in chunks]
    for rows in encoded:
        await call(lambda n, rows=rows: StageRows(n, name, rows), RowsStaged)  # type: ignore[misc]
    stage = name, sum(map(len, chunks)), xxhash.xxh3_128_digest(b"".join(encoded))
    await call(lambda n: CloseStage(n, *stage), StageClosed)
    return stage


async def committed(moor: Moor, query: str, batch: int, stages: list[Stage]) -> StagesCommitted:
    return await moor._caller.call(lambda n: CommitStaged(n, query, batch, stages), StagesCommitted)


async def aborted(moor: Moor, query: str, batch: int, stages: list[Stage]) -> int:
    names = [name for name, _, _ in stages]
    answer = await moor._caller.call(lambda n: AbortStaged(n, query, batch, names), StagesAborted)
    return answer.removed


async def published(moor: Moor, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Everything in a topic, in the order of its shards: (key, body)."""
    counts = await moor.topics(topic)
    count = sum(dict(counts).values())
    got: list[tuple[bytes | None, bytes]] = []
    if count:
        subscription = await moor.subscribe(topic, start="beginning")
        async with asyncio.timeout(20):
            async for message in subscription:
                got.append((message.key, message.body))
                if len(got) == count:
                    break
        await subscription.close()
    return got


def by_key(messages: list[tuple[bytes | None, bytes]]) -> dict[bytes | None, list[bytes]]:
    found: dict[bytes | None, list[bytes]] = defaultdict(list)
    for key, body in messages:
        found[key].append(body)
    return found


def keyed_rows(topic: str) -> list[list[Rows]]:
    """Of each partition its chunks; a key is in one partition, as after a shuffle by key."""
    return [
        [
            [
                Record(
                    topic,
                    b"%d/%04d" % (partition, chunk * CHUNK_ROWS + row) + b"." * 80,
                    b"key-%d-%d" % (partition, row % 3),
                )
                for row in range(CHUNK_ROWS)
            ]
            for chunk in range(CHUNKS)
        ]
        for partition in range(PARTITIONS)
    ]


def expected(partitions: list[list[Rows]]) -> dict[bytes | None, list[bytes]]:
    rows = [row for chunks in partitions for chunk in chunks for row in chunk]
    return by_key([(row.key, row.body) for row in rows if isinstance(row, Record)])


# --- one node that lives --------------------------------------------------------------------------


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
    async with moorline.connect(node.address) as moor:
        await moor._caller.call(lambda n: OpenStage(n, query, 0, 0, 0), StageOpened)
        await until(lambda: set(folder.iterdir()) != before)
    await until(lambda: set(folder.iterdir()) == before)


async def test_a_stage_is_written_by_the_session_that_opened_it(
    node: NodeProcess, moor: Moor, query: str
) -> None:
    opened = await moor._caller.call(lambda n: OpenStage(n, query, 0, 0, 0), StageOpened)
    async with moorline.connect(node.address) as other:
        with pytest.raises(NotFound):
            await other._caller.call(lambda n: StageRows(n, opened.stage, b"\x90"), RowsStaged)


# --- nodes that are killed ------------------------------------------------------------------------


class KilledNode(NodeProcess):
    """A node that kills itself at a point of a commit."""

    def __init__(self, data: Path, point: str, *flags: str) -> None:
        self.data = data
        program = [sys.executable, "-m", "tests.groups.killed_node", point, "serve"]
        self.process = subprocess.Popen(
            [*program, f"--data={data}", "--listen=tcp://127.0.0.1:0", "--http=off", *flags],
            stdout=subprocess.PIPE,
            stderr=(data.parent / f"{data.name}.stderr").open("ab"),
            env=clean_environment(),
            cwd=Path(__file__).parents[2],
        )
        self.ready_line = self._wait_ready()


def was_killed(node: NodeProcess) -> bool:
    return node.process.wait(30) == -signal.SIGKILL


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
        async with moorline.connect(node.address) as moor:
            stages = [
                await staged(moor, "q", 3, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    with KilledNode(tmp_path / "data", "never", *flags) as node:
        async with moorline.connect(node.address) as moor:
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
        async with moorline.connect(node.address) as moor:
            stages = [
                await staged(moor, "q", 0, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 0, stages)
        assert was_killed(node)
    with KilledNode(data, "never", *SMALL) as node:
        # No driver comes back: the start alone publishes the rest.
        async with moorline.connect(node.address) as moor:
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
        async with moorline.connect(node.address) as moor:
            stages = [
                await staged(moor, "q", 3, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    waits = "streams.shards takes effect at the next start"
    with KilledNode(data, "never", f"--set=streams.shards={shards}") as node:
        async with moorline.connect(node.address) as moor:
            assert await shards_in_use(moor) == 4
            assert (await committed(moor, "q", 3, stages)).already
            assert by_key(await published(moor, "t")) == expected(partitions)
        assert node.errors.count(waits) == 1
        assert f"set={shards}  now=4" in node.errors
    with KilledNode(data, "never", f"--set=streams.shards={shards}") as node:
        async with moorline.connect(node.address) as moor:
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
        async with moorline.connect(node.address) as moor:
            stages = [
                await staged(moor, "q", 3, partition, chunks)
                for partition, chunks in enumerate(partitions)
            ]
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    with KilledNode(data, "after:write:2", "--set=streams.shards=3") as node:
        async with moorline.connect(node.address) as moor:
            assert await shards_in_use(moor) == 3
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 3, stages)
        assert was_killed(node)
    # Staged for four shards, published in three up to the crash: so three it is, until all are out.
    with KilledNode(data, "never", "--set=streams.shards=4") as node:
        async with moorline.connect(node.address) as moor:
            assert await shards_in_use(moor) == 3
            assert (await committed(moor, "q", 3, stages)).already
            assert by_key(await published(moor, "t")) == expected(partitions)


# --- queues ---------------------------------------------------------------------------------------


async def queue_stages(moor: Moor, query: str, ids: list[bytes]) -> list[Stage]:
    """Two partitions, 20 rows for each queue."""
    stages = []
    for partition in range(2):
        rows: Rows = [
            QueueRow(ids[row % len(ids)], b"%d/%03d" % (partition, row))
            for row in range(10 * len(ids))
        ]
        chunks = [rows[:15], rows[15:]]
        stages.append(await staged(moor, query, 0, partition, chunks, target=QUEUES))
    return stages


def queue_contents(ids: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for partition in range(2):
        for row in range(10 * len(ids)):
            found[ids[row % len(ids)]].append(b"%d/%03d" % (partition, row))
    return found


async def waiting_in(moor: Moor, queue_id: bytes) -> list[bytes]:
    queue = moor.queue(queue_id)
    bodies = []
    for _ in range((await queue.info()).waiting):
        message = await queue.get()
        assert message is not None
        bodies.append(message.body)
        await message.ack()
    return bodies


async def queues_of(moor: Moor, count: int) -> list[bytes]:
    return [queue.id for queue in await moor.create_queues(count)]


async def test_rows_go_to_queues_in_the_order_of_their_partitions(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, QUEUES_MADE)
    stages = await queue_stages(moor, query, ids)
    assert (await committed(moor, query, 0, stages)).published == 20 * QUEUES_MADE
    assert (await committed(moor, query, 0, stages)).already
    assert {one: await waiting_in(moor, one) for one in ids} == queue_contents(ids)


async def test_a_full_queue_refuses_the_commit_before_it_is_decided(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, 2)
    stages = await queue_stages(moor, query, ids)
    for _ in range(128 - 19):
        await moor.send(ids[1], b"before")
    with pytest.raises(QuotaExceeded, match=r"20 more, 109 waiting"):
        await committed(moor, query, 0, stages)
    assert await waiting_in(moor, ids[0]) == []
    assert len(await waiting_in(moor, ids[1])) == 109
    # Read by its recipient, it has room: the same stages are still there.
    assert not (await committed(moor, query, 0, stages)).already
    assert {one: await waiting_in(moor, one) for one in ids} == queue_contents(ids)


async def test_a_queue_that_is_gone_refuses_the_commit(moor: Moor, query: str) -> None:
    ids = await queues_of(moor, 2)
    stages = await queue_stages(moor, query, ids)
    await moor.queue(ids[0]).delete()
    with pytest.raises(NotFound, match="takes no messages"):
        await committed(moor, query, 0, stages)
    assert await waiting_in(moor, ids[1]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "before:decide:1",
        "after:decide:1",
        "before:log:1",
        "after:log:1",
        "before:log:3",
        "after:log:5",
        "before:complete:1",
        "after:complete:1",
    ],
)
async def test_queues_after_a_kill_at_every_point(tmp_path: Path, point: str) -> None:
    flags = ("--set=streams.shards=4",)
    with KilledNode(tmp_path / "data", point, *flags) as node:
        async with moorline.connect(node.address) as moor:
            ids = await queues_of(moor, QUEUES_MADE)
            stages = await queue_stages(moor, "q", ids)
            with pytest.raises(ConnectionLost):
                await committed(moor, "q", 0, stages)
        assert was_killed(node)
    with KilledNode(tmp_path / "data", "never", *flags) as node:
        async with moorline.connect(node.address) as moor:
            await committed(moor, "q", 0, stages)
            assert {one: await waiting_in(moor, one) for one in ids} == queue_contents(ids)
