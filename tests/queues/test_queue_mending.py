"""One queue of a running node, checked and repaired while the others serve; and a checkpoint on demand."""

import asyncio
import random
import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from tests.access.rows import operator
from tests.queues.queue_server import (
    ROOMY,
    WITHIN_S,
    Certificates,
    QueueServer,
    queue_server,
    take,
    tried,
)
from tests.waiting import until

from moorline import limits
from moorline.client.moor import Moor
from moorline.client.queue import Queue
from moorline.config.settings import Queues as Settings
from moorline.errors import (
    CallFailed,
    ConnectionLost,
    Denied,
    NodeDiskFull,
    NotFound,
    OutcomeUnknown,
    QueueDamaged,
    QueueInRepair,
    SubscriptionEnded,
)
from moorline.ids import text_of
from moorline.journal.queues.folder import path_of
from moorline.journal.queues.mending import QueueWork
from moorline.journal.queues.report import Report
from moorline.staging.queue_commits import undisturbed
from moorline.wire.queue import QueueChecked

BODIES = [b"message %d" % number for number in range(6)]


def folder_of(node: QueueServer, queue: Queue, root: Path) -> Path:
    return root / "queues" / path_of(queue.id, node.settings.folder_levels)


async def stored(node: QueueServer, moor: Moor, *bodies: bytes) -> Queue:
    """A queue with these messages in its own files, which are closed."""
    queue = await moor.create_queue()
    for body in bodies:
        await moor.send(queue.id, body)
    await node.broker.checkpoints.checkpoint()
    closed(node, queue)
    return queue


def closed(node: QueueServer, queue: Queue) -> None:
    found = node.store.find(queue.id)
    assert found is not None
    node.store.files.close_queue(found)


def spoil(folder: Path, body: bytes) -> None:
    """One byte of that message is another one."""
    (file,) = [file for file in folder.glob("messages.*.log") if body in file.read_bytes()]
    data = bytearray(file.read_bytes())
    data[data.index(body)] ^= 1
    file.write_bytes(bytes(data))


async def read_out(queue: Queue, count: int) -> list[bytes]:
    found = []
    messages = queue.read()
    for _ in range(count):
        message = await take(messages)
        found.append(message.body)
        await message.ack()
    assert (await queue.info()).waiting == 0
    return found


def tree(root: Path) -> dict[str, bytes]:
    """All files of queues, without the log."""
    files = [path for path in root.rglob("*") if path.is_file() and "wal" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


# --- a repair -------------------------------------------------------------------------------------


async def test_one_bad_record_costs_one_message_and_no_restart(tmp_path: Path) -> None:
    """The node sets the queue aside when it meets the record; repaired it serves all others of it."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue, other = await stored(node, moor, *BODIES), await stored(node, moor, b"fine")
        spoil(folder_of(node, queue, tmp_path), BODIES[2])
        with pytest.raises((QueueDamaged, SubscriptionEnded)):
            await read_out(queue, len(BODIES))
        assert (await queue.info()).is_damaged
        assert await tried(moor, queue, b"refused") == "DAMAGED"
        found = await queue.check()
        assert not found.is_clean
        assert [problem.kind for problem in found.problems] == ["quarantine"]
        assert (await queue.info()).is_damaged, "a check changes nothing"
        done = await queue.repair()
        assert done.is_clean
        assert (done.lost, done.saved, done.messages) == (1, done.messages, 5)
        assert not (await queue.info()).is_damaged
        assert await tried(moor, queue, b"new") == "OK"
        expected = [body for body in BODIES if body != BODIES[2]]
        assert await read_out(queue, 6) == [*expected, b"new"]
        assert await read_out(other, 1) == [b"fine"]
        assert node.store.files.lost_messages == 1
        kept = [path.name for path in (tmp_path / "queues" / "quarantine").iterdir()]
        assert len(kept) == 1, "the damaged files are kept"
        assert kept[0].startswith(f"{text_of(queue.id)}.repaired-")
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        assert not (await moor.queue(queue.id).info()).is_damaged
        assert (await moor.queue(queue.id).check()).is_clean


async def test_a_bad_record_that_nobody_met_yet_is_found_and_repaired(tmp_path: Path) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        await moor.send(queue.id, b"still in the log")
        spoil(folder_of(node, queue, tmp_path), BODIES[5])
        before = tree(tmp_path / "queues" / "quarantine")
        found = await queue.check()
        assert (found.is_clean, found.lost, found.problems_total) == (False, 1, 1)
        assert [problem.kind for problem in found.problems] == ["record"]
        assert tree(tmp_path / "queues" / "quarantine") == before
        assert not (await queue.info()).is_damaged
        done = await queue.repair()
        assert (done.is_clean, done.lost, done.saved) == (True, 1, 6)
        assert await read_out(queue, 6) == [*BODIES[:5], b"still in the log"]


async def test_what_was_repaired_survives_a_crash_behind_the_answer(tmp_path: Path) -> None:
    """The index knows of the repair before the operator does."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        spoil(folder_of(node, queue, tmp_path), BODIES[0])
        with pytest.raises(QueueDamaged):
            await queue.get()
        await node.broker.checkpoints.checkpoint()
        await queue.repair()
        copy = tmp_path / "crashed" / "queues"
        for name, data in tree(tmp_path / "queues").items():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(data)
        (copy / "wal").mkdir(exist_ok=True)
        for file in (tmp_path / "queues" / "wal").iterdir():
            (copy / "wal" / file.name).write_bytes(file.read_bytes())
    async with queue_server(tmp_path / "crashed", ROOMY) as node, node.connect() as moor:
        assert await read_out(moor.queue(queue.id), 5) == BODIES[1:]


async def test_a_sound_queue_stays_as_it_is(tmp_path: Path) -> None:
    """With a reader: its subscription goes on, and nothing comes twice."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        messages = queue.read(window=2)
        first = await take(messages)
        await first.ack()
        for done in (await queue.check(), await queue.repair()):
            assert (done.is_clean, done.problems_total, done.lost, done.saved) == (True, 0, 0, 0)
            assert done.messages == 5
        seen = []
        for _ in BODIES[1:]:
            message = await take(messages)
            seen.append(message.body)
            await message.ack()
        assert seen == BODIES[1:]
        assert not (tmp_path / "queues" / "quarantine").exists()


async def test_a_reader_of_a_repaired_queue_is_told_and_reads_on(tmp_path: Path) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        messages = queue.read(window=1)
        await take(messages)
        spoil(folder_of(node, queue, tmp_path), BODIES[3])
        await queue.repair()
        with pytest.raises(SubscriptionEnded, match="DAMAGED"):
            await take(messages)
        assert await read_out(queue, 5) == [body for body in BODIES if body != BODIES[3]]


async def test_messages_of_another_node_are_not_taken_in(tmp_path: Path) -> None:
    """Their ids are above all that this node has given: its log could not go on behind them."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
    shutil.copytree(tmp_path / "queues", tmp_path / "far" / "queues")
    async with queue_server(tmp_path / "far", ROOMY) as node, node.connect() as moor:
        for body in [*BODIES, *BODIES]:
            await moor.send(queue.id, body)
    far = folder_of(node, queue, tmp_path / "far")
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        mine = moor.queue(queue.id)
        folder = folder_of(node, mine, tmp_path)
        for file in folder.iterdir():
            file.unlink()
        for file in far.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        before = tree(tmp_path / "queues" / "messages")
        with pytest.raises(QueueDamaged, match="of another node"):
            await mine.repair()
        assert tree(tmp_path / "queues" / "messages") == before
        assert await tried(moor, await moor.create_queue(), b"others serve") == "OK"


# --- others meanwhile -----------------------------------------------------------------------------


class Held:
    """A check that waits in its thread until it may go on."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.check: Callable[[QueueWork], Report] = QueueWork.check

    def __call__(self, work: QueueWork) -> Report:
        self.has_begun.set()
        assert self.may_end.wait(WITHIN_S)
        return self.check(work)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    monkeypatch.setattr(QueueWork, "check", lambda work: held(work))
    yield held
    held.may_end.set()


async def test_calls_about_the_queue_wait_and_others_do_not(tmp_path: Path, held: Held) -> None:
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as moor,
        node.connect() as second,
    ):
        queue = await stored(node, moor, *BODIES)
        other = await moor.create_queue()
        head = await queue.get()
        assert head is not None
        check = asyncio.create_task(moor.queue(queue.id).check())
        await until(held.has_begun.is_set)
        async with asyncio.TaskGroup() as tasks:
            waiting = [
                tasks.create_task(head.ack()),
                tasks.create_task(moor.send(queue.id, b"sent meanwhile")),
                tasks.create_task(moor.send(queue.id, b"and this behind it")),
                tasks.create_task(queue.off()),
            ]
            # Whatever is asked of others is answered, also by the connection whose calls wait.
            assert await tried(moor, other, b"1") == "OK"
            assert await read_out(other, 1) == [b"1"]
            # Nor does what the node does by itself touch it.
            await node.broker.checkpoints.checkpoint()
            found = node.store.find(queue.id)
            assert found is not None
            assert node.broker.expire(found, 1 << 60) == 0
            assert (await second.queue(queue.id).info()).waiting == len(BODIES)
            assert not any(task.done() for task in waiting)
            assert not check.done()
            held.may_end.set()
        assert (await check).is_clean
        assert await tried(moor, queue, b"refused") == "OFF"
        read = await read_out(queue, 7)
        assert read == [*BODIES[1:], b"sent meanwhile", b"and this behind it"]


async def test_what_waits_for_a_check_is_bounded(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorline.queues.parking.PARKED_CALLS_MAX", 3)
    assert limits.PARKED_CALLS_MAX > 3
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, b"0")
        check = asyncio.create_task(moor.queue(queue.id).check())
        await until(held.has_begun.is_set)
        sends = asyncio.create_task(moor.send_all([(queue.id, b"%d" % n) for n in range(1, 6)]))
        await until(lambda: len(node.broker.parking) == 3)
        held.may_end.set()
        answers = await sends
        assert [isinstance(answer, QueueInRepair) for answer in answers] == [False] * 3 + [True] * 2
        assert (await check).is_clean
        assert len(node.broker.parking) == 0
        assert await read_out(queue, 4) == [b"0", b"1", b"2", b"3"]


async def test_a_reader_that_waits_gets_what_was_sent_meanwhile(tmp_path: Path, held: Held) -> None:
    async with (
        queue_server(tmp_path, ROOMY) as node,
        node.connect() as moor,
        node.connect() as sender,
    ):
        queue = await stored(node, moor)
        messages = queue.read()
        waiting = asyncio.create_task(take(messages))
        await until(lambda: len(node.broker.subscriptions) == 1)
        check = asyncio.create_task(sender.queue(queue.id).check())
        await until(held.has_begun.is_set)
        send = asyncio.create_task(sender.send(queue.id, b"ahoy"))
        await until(lambda: len(node.broker.parking) == 1)
        held.may_end.set()
        assert (await waiting).body == b"ahoy"
        await send
        await check


def result_of(look: Generator[None, None, int]) -> int:
    while True:
        try:
            next(look)
        except StopIteration as done:
            return int(done.value)


async def test_a_look_at_the_files_lets_others_in_and_begins_anew_if_they_changed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorline.journal.queues.files.LOOK_BYTES_PER_TURN", 1)
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        found = node.store.find(queue.id)
        assert found is not None
        look = node.store.files.unreadable(found)
        next(look)
        # Their files are others now, and the one behind the pause is gone.
        assert await read_out(queue, len(BODIES)) == BODIES
        await moor.send(queue.id, b"new")
        await node.broker.checkpoints.checkpoint()
        assert result_of(look) == 0
        assert (await queue.info()).waiting == 1
        queue = await stored(node, moor, *BODIES)
        spoil(folder_of(node, queue, tmp_path), BODIES[4])
        assert (await queue.info()).unreadable == len(BODIES)


async def test_a_commit_that_is_decided_waits_for_a_repair_and_not_for_ever(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        await undisturbed(node.broker)
        check = asyncio.create_task(queue.check())
        await until(held.has_begun.is_set)
        waiting = asyncio.create_task(undisturbed(node.broker))
        await until(lambda: len(node.broker.parking._waiters) == 1)
        with monkeypatch.context() as patch:
            patch.setattr("moorline.staging.queue_commits.STAGED_MENDING_MS_MAX", 1)
            with pytest.raises(OutcomeUnknown, match="commit it again, and it goes on"):
                await undisturbed(node.broker)
        assert not waiting.done()
        held.may_end.set()
        await asyncio.wait_for(waiting, WITHIN_S)
        assert (await check).is_clean


async def test_a_reader_that_went_while_it_waited_does_not_have_the_queue(
    tmp_path: Path, held: Held
) -> None:
    """Its end was told before its call was handled: the one who reads it meanwhile keeps the queue."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue, sessions = await stored(node, moor), node.listeners.sessions
        waiting = asyncio.create_task(take(queue.read()))
        await until(lambda: len(node.broker.subscriptions) == 1)
        check = asyncio.create_task(moor.queue(queue.id).check())
        await until(held.has_begun.is_set)
        async with node.connect() as gone:
            leaving = asyncio.create_task(take(gone.queue(queue.id).read()))
            await until(lambda: len(node.broker.parking) == 1)
        await until(lambda: len(sessions) == 1)
        await asyncio.wait([leaving])
        held.may_end.set()
        await check
        assert isinstance(leaving.exception(), ConnectionLost)
        await moor.send(queue.id, b"ahoy")
        assert (await waiting).body == b"ahoy"


@pytest.mark.parametrize("seed", range(3))
async def test_everything_goes_on_under_checks_repairs_and_checkpoints(
    tmp_path: Path, seed: int
) -> None:
    """Seeded: senders, readers, expiry, and an operator who never rests. All arrives once, in its order."""
    chance = random.Random(seed)
    settings = Settings(
        max_queue_messages=8, max_file_messages=9, sync=chance.choice(["power", "process"])
    )
    async with (
        queue_server(tmp_path, settings) as node,
        node.connect() as moor,
        node.connect() as other,
    ):
        queues = await moor.create_queues(3)
        wanted = {queue.id: [b"%d" % number for number in range(120)] for queue in queues}
        got: dict[bytes, list[bytes]] = {queue.id: [] for queue in queues}

        async def send(queue: Queue) -> None:
            for body in wanted[queue.id]:
                while await tried(other, queue, body) != "OK":
                    await asyncio.sleep(0)

        async def read(queue: Queue) -> None:
            async for message in queue.read(window=chance.randrange(1, 5)):
                if not message.is_quota_marker:
                    got[queue.id].append(message.body)
                await message.ack()
                if len(got[queue.id]) == len(wanted[queue.id]):
                    return

        async def operate() -> None:
            while True:
                queue = other.queue(chance.choice(queues).id)
                act = chance.choice([queue.check, queue.repair, other.checkpoint])
                done = await act()
                assert not isinstance(done, QueueChecked) or done.is_clean, done.problems
                await asyncio.sleep(chance.random() / 200)

        operator = asyncio.create_task(operate())
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(send(queue))
                tasks.create_task(read(queue))
        assert not operator.done(), operator.exception()
        operator.cancel()
        assert got == wanted
        assert node.store.files.lost_messages == 0
        assert node.store.files.quarantined == 0


# --- who may, and what is refused -----------------------------------------------------------------


async def test_only_operators_may(tmp_path: Path, certificates: Certificates) -> None:
    rows = [operator("captain")]
    async with queue_server(tmp_path, ROOMY, certificates.context(), rows) as node:
        address = str(node.address)
        async with certificates.connect(address, "billing") as owner:
            queue = await owner.create_queue()
            for call in (queue.check, queue.repair, owner.checkpoint):
                with pytest.raises(Denied, match="the right a"):
                    await call()
        async with certificates.connect(address, "captain") as captain:
            assert (await captain.queue(queue.id).check()).is_clean
            assert (await captain.queue(queue.id).repair()).is_clean
            await captain.checkpoint()
            with pytest.raises(NotFound):
                await captain.queue(b"n" * 24).check()


async def test_a_repair_is_refused_while_the_disk_is_nearly_full(tmp_path: Path) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        node.broker.fill_disk(is_full=True)
        assert (await queue.check()).is_clean, "a check writes nothing"
        with pytest.raises(NodeDiskFull):
            await queue.repair()
        node.broker.fill_disk(is_full=False)
        assert (await queue.repair()).is_clean


async def test_a_repair_that_fails_leaves_the_queue_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a second one takes in whatever the first had come to."""
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queue = await stored(node, moor, *BODIES)
        spoil(folder_of(node, queue, tmp_path), BODIES[1])

        def failing() -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as broken:
            broken.setattr(node.disk, "sync_all", failing)
            with pytest.raises(CallFailed):
                await queue.repair()
        assert (await queue.info()).is_damaged
        done = await queue.repair()
        assert (done.is_clean, done.messages, done.lost) == (True, 5, 1)
        assert await read_out(queue, 5) == [body for body in BODIES if body != BODIES[1]]


async def test_a_checkpoint_tells_what_it_did(tmp_path: Path) -> None:
    async with queue_server(tmp_path, ROOMY) as node, node.connect() as moor:
        queues = await moor.create_queues(3)
        for queue in queues:
            await moor.send(queue.id, b"x" * 1_000)
        done = await moor.checkpoint()
        assert done.queues == 3
        assert done.log_bytes > 3_000
        assert done.log_bytes_left == 0
        assert len(list((tmp_path / "queues").rglob("messages.*.log"))) == 3
        assert (await moor.checkpoint()).queues == 0
