"""`moor backup` and `moor restore` on real nodes: what is in the copy, and what a restored node does."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.catalog.databases import empty_database
from tests.process.nodes import MOOR, NodeProcess, clean_environment, run_moor
from tests.waiting import eventually

import moorline
from moorline.catalog import Catalog, EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.errors import BackupRefused, MoorlineError
from moorline.net.clock import wall_us
from moorline.node.backup_folder import MANIFEST, Step, check_backup
from moorline.node.restoring import Wanted, restore

pytestmark = pytest.mark.process

TOPIC, FILTER = "backup/numbers", "backup/#"
GROUP = "$shared/g/backup/#"


def unseen(_done: int, _total: int) -> None:
    """Nobody watches."""


class Load:
    """A client that sends to a queue and then publishes, number by number, each behind the answer before."""

    def __init__(self, moor: Moor, queue: bytes) -> None:
        self.moor, self.queue = moor, queue
        self.sent = self.published = 0
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        with contextlib.suppress(MoorlineError):
            while True:
                await self.moor.send(self.queue, b"%d" % (self.sent + 1))
                self.sent += 1
                await self.moor.publish(TOPIC, b"%d" % (self.published + 1))
                self.published += 1

    async def reaches(self, count: int) -> None:
        while self.published < count:
            assert not self._task.done(), "the load ended"
            await asyncio.sleep(0.005)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def backed_up(node: NodeProcess, folder: Path) -> dict[str, Any]:
    done = await asyncio.to_thread(
        run_moor, "backup", str(folder), "--json", f"--address={node.address}"
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def restored(folder: Path, data: Path, *flags: str) -> dict[str, Any]:
    done = await asyncio.to_thread(
        run_moor, "restore", str(folder), "--json", f"--data={data}", *flags
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []


async def in_topic(moor: Moor, count: int) -> list[int]:
    """The numbers of the topic, from its beginning, until that many have come."""
    found: list[int] = []
    messages = await moor.subscribe(FILTER, start="beginning")
    async with asyncio.timeout(60):
        async for message in messages.acking():  # more than a window of them
            found.append(int(message.body))
            if len(found) == count:
                await messages.close()
                return found
    raise AssertionError("the subscription ended")


async def in_queue(moor: Moor, queue: bytes) -> list[int]:
    """All that waits in a queue; it is empty then."""
    found = []
    async for message in moor.queue(queue):
        found.append(int(message.body))
        if await message.ack() == 0:
            return found
    raise AssertionError("the queue ended")


LARGE = ("--set=queues.max_queue_messages=900000", "--set=queues.max_file_messages=1000000")


async def test_a_backup_under_load_is_of_one_moment(tmp_path: Path) -> None:
    data, folder, fresh = tmp_path / "data", tmp_path / "backup", tmp_path / "fresh"
    with NodeProcess(data, *LARGE) as node:
        async with (
            moorline.connect(node.address) as moor,
            moorline.connect(node.address) as other,
        ):
            queue = await moor.create_queue()
            deleted = await moor.create_queue()
            await moor.session("reader", expiry_s=3_600)
            reading = await moor.subscribe(FILTER, start="beginning")
            load = Load(other, queue.id)
            await load.reaches(200)
            for number in range(1, 51):
                message = await anext(reading)
                assert int(message.body) == number
                await message.ack()
            answered = load.published
            made = await backed_up(node, folder)
            later = load.sent
            assert load.published > answered, "the load went on"
            await load.reaches(load.published + 100)
            await deleted.delete()
            beyond = await other.publish(TOPIC, b"0")
            await load.end()
        node.kill()  # what is on its disk then is not looked at again
    assert made["files"] > 0
    assert check_backup(folder, unseen).digest == made["digest"]
    assert (await restored(folder, fresh))["digest"] == made["digest"]
    assert run_moor("journal", "check", f"--data={fresh}").returncode == 0
    with NodeProcess(fresh, *LARGE) as node:
        async with moorline.connect(node.address) as moor:
            sent = await in_queue(moor, queue.id)
            # K1: all that was answered before, in order, and nothing that came when the backup was made.
            assert sent == list(range(1, len(sent) + 1))
            assert answered <= len(sent) <= later + 1
            published = await in_topic(moor, len(sent) - 1)
            assert published == list(range(1, len(sent)))
            # The same moment: the last number may be in the queue alone, as it is sent there first.
            offset = (await moor.publish(TOPIC, b"-1")).offset
            assert offset > beyond.offset
            rest = await in_topic(moor, len(sent))
            assert rest[-1] in (len(sent), -1)
            # K2: the session goes on where it had stored its place, and not behind what there is.
            (mine,) = await moor.session("reader", expiry_s=3_600)
            assert 1 <= int((await anext(mine)).body) <= 51
            assert await moor.send(deleted.id, b"it is there again")
        assert "older copy, or was put back" in node.errors


async def small_backup(tmp_path: Path, *flags: str) -> tuple[Path, bytes]:
    """The backup of a node that is stopped since; three messages are in its queue and its topic."""
    folder = tmp_path / "backup"
    with NodeProcess(tmp_path / "data", *flags) as node:
        async with moorline.connect(node.address) as moor:
            queue = await moor.create_queue()
            for body in (b"1", b"2", b"3"):
                await moor.send(queue.id, body)
                await moor.publish(TOPIC, body)
            await backed_up(node, folder)
        assert node.stop() == 0
    return folder, queue.id


async def serves(data: Path, queue: bytes, *flags: str) -> None:
    """A node starts on the folder, and has what is in that backup."""
    with NodeProcess(data, *flags) as node:
        async with moorline.connect(node.address) as moor:
            assert await in_queue(moor, queue) == [1, 2, 3]
            assert await in_topic(moor, 3) == [1, 2, 3]


def refused(*arguments: str) -> str:
    """What the command says that is refused."""
    done = run_moor(*arguments)
    assert done.returncode == 27, (done.returncode, done.stdout, done.stderr)
    return done.stderr


async def test_what_is_damaged_unfinished_or_there_already_is_refused(tmp_path: Path) -> None:
    folder, _ = await small_backup(tmp_path)
    fresh = tmp_path / "fresh"
    assert "is not empty" in refused("restore", str(folder), f"--data={tmp_path / 'data'}")
    assert "holds no backup" in refused("restore", str(tmp_path), f"--data={fresh}")
    segment = next(file for file in sorted(folder.rglob("*.seg")) if file.stat().st_size > 64)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for text in (
        refused("restore", "--check", str(folder)),
        refused("restore", str(folder), f"--data={fresh}"),
    ):
        assert segment.name in text
    segment.write_bytes(whole)
    table = next(file for file in (folder / "catalog").glob("*.copy") if file.stat().st_size > 2)
    said = table.read_bytes()
    for harm in (lambda: table.write_bytes(said[:-1]), table.unlink):
        harm()
        assert table.name in refused("restore", "--check", str(folder))
    table.write_bytes(said)
    # What the restore left is no folder for a node, and no place for another restore.
    ended = run_moor("serve", f"--data={fresh}", "--listen=tcp://127.0.0.1:0")
    assert "a restore into" in ended.stderr
    assert "is not empty" in refused("restore", str(folder), f"--data={fresh}")
    listed = folder / "files"
    lines = listed.read_bytes().splitlines(keepends=True)
    listed.write_bytes(b"".join(lines[1:]))
    assert "list of files" in refused("restore", "--check", str(folder))
    listed.write_bytes(b"".join(lines))
    manifest = folder / MANIFEST
    told = manifest.read_bytes()
    manifest.write_bytes(told.replace(b'"version":1', b'"version":2', 1))
    newer = run_moor("restore", "--check", str(folder))
    assert (newer.returncode, "newer Moorline" in newer.stderr) == (25, True)
    manifest.write_bytes(told.replace(b'"files":', b'"files":1', 1))
    assert "damaged" in refused("restore", "--check", str(folder))
    manifest.unlink()
    assert "did not come to its end" in refused("restore", "--check", str(folder))


async def test_a_backup_inside_of_what_it_is_of_is_refused_and_what_lies_there_stays(
    tmp_path: Path,
) -> None:
    """`DATA/backup` is where a start looks for what a killed node held: a backup there would go with that."""
    data = tmp_path / "data"
    (tmp_path / "alias").symlink_to(data)
    with NodeProcess(data) as node:
        for inside in (
            data / "backup" / "monday",
            data / "streams" / "x",
            tmp_path / "alias" / "y",
        ):
            done = run_moor("backup", str(inside), f"--address={node.address}")
            assert (done.returncode, "inside of the data folder" in done.stderr) == (
                BackupRefused.exit_code,
                True,
            )
            assert not inside.exists()
        await backed_up(node, tmp_path / "beside")
        (data / "backup" / "letter").mkdir(parents=True, exist_ok=True)
        (data / "backup" / "20261119T142233Z-9f2c41aa").mkdir()
        assert node.stop() == 0
    with NodeProcess(data):
        assert names_in(data / "backup") == ["letter"]


async def test_nobody_makes_a_double_of_a_node_that_lives(tmp_path: Path) -> None:
    folder, fresh = tmp_path / "backup", tmp_path / "fresh"
    with NodeProcess(tmp_path / "data") as node:
        await backed_up(node, folder)
        done = await asyncio.to_thread(run_moor, "restore", str(folder), f"--data={fresh}")
        assert done.returncode == 20, done.stderr
        assert "runs on" in done.stderr
        assert not fresh.exists()
        # Also where its folder cannot be seen: it answers.
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        done = await asyncio.to_thread(run_moor, "restore", str(folder), f"--data={fresh}")
        assert done.returncode == 20, done.stderr
        assert "answers at" in done.stderr
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        await restored(folder, fresh, "--trial")
    with NodeProcess(fresh):
        pass


KILLS = """
import asyncio, os, signal, sys
from pathlib import Path
from moorline.node.backup_folder import Step, write_backup
from moorline.node.restoring import Wanted, restore

def at(step):
    if step.value == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "backup":
    held, target = map(Path, sys.argv[3:5])
    write_backup(held, target, 0, lambda done, total: None, at, lambda: False)
else:
    backup, data = map(Path, sys.argv[3:5])
    asyncio.run(restore(Wanted(backup, data, *sys.argv[5:]), lambda done, total: None, at))
"""


def killed(*arguments: str) -> None:
    done = subprocess.run(
        [MOOR[0], "-c", KILLS, *arguments],
        env=clean_environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


async def test_a_backup_that_is_killed_at_any_step_is_none(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        async with moorline.connect(node.address) as moor:
            await moor.publish(TOPIC, b"1")
            held = await moor.cluster.back_up()
            while held.phase != "ready":
                held = await moor.cluster.back_up(held.cut)
            for step in (Step.COPIED, Step.SYNCED, Step.PROVEN):
                target = tmp_path / step.value
                killed("backup", step.value, held.folder, str(target))
                assert "did not come to its end" in refused("restore", "--check", str(target))
            killed("backup", Step.DONE.value, held.folder, str(tmp_path / "done"))
            assert run_moor("restore", "--check", str(tmp_path / "done")).returncode == 0
        # The connection is gone, and with it what was held for it.
        eventually(lambda: not names_in(tmp_path / "data" / "backup"))


async def test_a_restore_that_is_killed_at_any_step_starts_no_node(tmp_path: Path) -> None:
    folder, queue = await small_backup(tmp_path)
    for step in Step:
        fresh = tmp_path / step.value
        killed("restore", step.value, str(folder), str(fresh))
        if step is Step.DONE:
            await serves(fresh, queue)
            continue
        ended = run_moor("serve", f"--data={fresh}", "--listen=tcp://127.0.0.1:0")
        assert "a restore into" in ended.stderr, step
        shutil.rmtree(fresh)


async def test_a_given_catalog_is_whole_or_not_there(
    tmp_path: Path, postgres: EmbeddedPostgres
) -> None:
    flag = f"--catalog={await empty_database(postgres)}"
    folder, queue = await small_backup(tmp_path, flag)
    dsn = await empty_database(postgres)
    given = f"--catalog={dsn}"
    for step in (Step.COPIED, Step.AHEAD):
        killed("restore", step.value, str(folder), str(tmp_path / step.value), dsn)
    killed("restore", Step.CATALOG.value, str(folder), str(tmp_path / "killed"), dsn)
    # It is whole, so it is not put over; the folder comes back beside it.
    fresh = tmp_path / "fresh"
    said = refused("restore", str(folder), f"--data={fresh}", given)
    assert "has a catalog already" in said
    assert not fresh.exists()
    await restored(folder, fresh, given, "--keep-catalog")
    await serves(fresh, queue, given)
    # The home has moved since, and where it went is no more: only its backup is left of it.
    async with Catalog.open(dsn) as catalog:
        await catalog.execute("update moorline.home set moves = moves + 2")
        await catalog.execute("update moorline.node set lease_until = now() + interval '1 hour'")
        held = run_moor(
            "restore", str(folder), f"--data={tmp_path / 'held'}", given, "--keep-catalog"
        )
        assert (held.returncode, "has moved since" in held.stderr) == (20, True), held.stderr
        await catalog.execute("update moorline.node set lease_until = null")
    moved = tmp_path / "moved"
    await restored(folder, moved, given, "--keep-catalog")
    await serves(moved, queue, given)


async def test_epochs_and_numbers_go_on_far_behind(
    tmp_path: Path, postgres: EmbeddedPostgres
) -> None:
    before = await empty_database(postgres)
    folder, _ = await small_backup(tmp_path, f"--catalog={before}")
    dsn = await empty_database(postgres)
    wanted = Wanted(folder, tmp_path / "fresh", dsn)
    manifest = await restore(wanted, unseen)
    one, other = await asyncpg.connect(before), await asyncpg.connect(dsn)
    try:
        for table in manifest.of.catalog.tables:
            if table.name not in ("migration", "node"):
                rows = f"select * from moorline.{table.name} order by 1"
                assert await one.fetch(rows) == await other.fetch(rows), table.name
        last = "select nextval('moorline.epoch')"
        assert await other.fetchval(last) > await one.fetchval(last) + 1_000_000
        assert await other.fetchval("select lock from moorline.node") == ""
    finally:
        await one.close()
        await other.close()
    assert manifest.of.time_us < wall_us()


async def test_tables_of_others_in_the_embedded_postgres_come_along(tmp_path: Path) -> None:
    folder, fresh = tmp_path / "backup", tmp_path / "fresh"
    with NodeProcess(tmp_path / "data") as node:
        connection = await asyncpg.connect(embedded(node))
        await connection.execute("create table public.tea (kind text primary key)")
        await connection.execute("insert into tea values ('assam'), ('sencha')")
        await connection.close()
        await backed_up(node, folder)
    await restored(folder, fresh)
    with NodeProcess(fresh) as node:
        connection = await asyncpg.connect(embedded(node))
        rows = await connection.fetch("select kind from tea order by kind")
        await connection.close()
    assert [row["kind"] for row in rows] == ["assam", "sencha"]


def embedded(node: NodeProcess) -> str:
    return f"postgresql://postgres@/postgres?host={(node.data / 'run').resolve()}&port=5432"


async def test_a_node_that_dies_under_a_backup(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "backup"
    with NodeProcess(data) as node:
        async with moorline.connect(node.address) as moor:
            # Another one is at it: there is one cut at a time, and it ends with its connection.
            held = await moor.cluster.back_up()
            done = await asyncio.to_thread(
                run_moor, "backup", str(folder), f"--address={node.address}"
            )
            assert done.returncode == 12, done.stderr
            assert "is being made" in done.stderr
            while held.phase != "ready":
                held = await moor.cluster.back_up(held.cut)
            assert held.cut in names_in(data / "backup")
            node.kill()
    assert held.cut in names_in(data / "backup")
    with NodeProcess(data):
        assert not names_in(data / "backup")
