"""The embedded Postgres and kill -9: of its node, of itself, of initdb, and what is left behind."""

# ruff: noqa: ASYNC220, ASYNC240 - a test has its loop to itself and may wait for the disk

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from tests.catalog.processes import WAIT_S_MAX, is_running, processes_with
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres, leftover

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def node_program(
    folder: Path, loop: str = "asyncio"
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.catalog.node_program", str(folder), loop),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ready(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """The pid and the address of the Postgres that the program runs."""
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S_MAX):
        pid, _, dsn = (await process.stdout.readline()).decode().strip().partition(" ")
    return int(pid), dsn


async def store(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("create table kept as select 42 as answer")
    await connection.close()


async def assert_kept(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        assert await connection.fetchval("select answer from kept") == 42
        await connection.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_postgres_ends_with_a_killed_node(folder: Path, loop: str) -> None:
    async with node_program(folder, loop) as node:
        pid, dsn = await ready(node)
        await store(dsn)
        node.kill()
        await until(lambda: not is_running(pid))
    assert "fast shutdown request" in folder.with_name("catalog.log").read_text()
    await assert_kept(folder)


async def test_start_right_after_a_killed_node(folder: Path) -> None:
    """The leftover may still be shutting down."""
    async with node_program(folder) as node:
        _, dsn = await ready(node)
        await store(dsn)
        node.kill()
        await node.wait()
        await assert_kept(folder)


async def test_node_and_postgres_killed_together(folder: Path) -> None:
    async with node_program(folder) as node:
        pid, dsn = await ready(node)
        await store(dsn)
        os.kill(pid, signal.SIGSTOP)
        node.kill()
        os.kill(pid, signal.SIGKILL)
        await node.wait()
        assert (folder / "postmaster.pid").exists()
        await assert_kept(folder)


async def test_leftover_that_does_not_end_is_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftover, "CATALOG_LEFTOVER_MS_MAX", 100)
    monkeypatch.setattr(leftover, "CATALOG_KILL_MS_MAX", 500)
    async with node_program(folder) as node:
        pid, dsn = await ready(node)
        await store(dsn)
        os.kill(pid, signal.SIGSTOP)
        node.kill()
        await node.wait()
        assert leftover.processes_on(folder)[0] == pid
        await assert_kept(folder)
        assert not is_running(pid)


async def test_ctrl_c_goes_to_the_node_alone(folder: Path) -> None:
    async with node_program(folder) as node:
        pid, _ = await ready(node)
        assert os.getpgid(pid) != os.getpgid(node.pid)
        assert os.getsid(pid) != os.getsid(node.pid)


async def test_died_tells_of_a_killed_postgres(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        await store(postgres.dsn)
        watch = asyncio.create_task(postgres.died())
        other_watch = asyncio.create_task(postgres.died())
        await asyncio.sleep(0)
        assert not watch.done()
        other_watch.cancel()
        os.kill(postgres.pid, signal.SIGKILL)
        async with asyncio.timeout(WAIT_S_MAX):
            assert "ended by SIGKILL" in await watch
    await assert_kept(folder)


async def test_died_tells_of_a_stopped_postgres(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        os.kill(postgres.pid, signal.SIGINT)
        async with asyncio.timeout(WAIT_S_MAX):
            told = await postgres.died()
        assert "with exit code 0" in told
        assert "database system is shut down" in told


async def test_killed_in_the_middle_of_initdb(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    async with node_program(folder) as node:
        await until(lambda: list(folder.parent.glob("catalog.new-*/base")))
        node.kill()
        await node.wait()
    assert not folder.exists()
    await until(lambda: not processes_with(f"{folder}.new-"))
    async with EmbeddedPostgres(folder):
        assert list(folder.parent.glob("catalog.new-*")) == []


@pytest.mark.parametrize("lines", ["{pid}\n{folder}\n", ""], ids=["foreign", "empty"])
async def test_stale_pid_file(folder: Path, lines: str) -> None:
    """The number in it may belong to another program by now, even to one of the same user."""
    async with EmbeddedPostgres(folder) as postgres:
        await store(postgres.dsn)
    owner = folder.stat()
    with subprocess.Popen(["sleep", "600"], user=owner.st_uid) as stranger:
        pid_file = folder / "postmaster.pid"
        pid_file.write_text(lines.format(pid=stranger.pid, folder=folder))
        pid_file.chmod(0o600)
        os.chown(pid_file, owner.st_uid, owner.st_gid)
        await assert_kept(folder)
        assert stranger.poll() is None
        stranger.kill()


async def test_another_postgres_with_the_number_in_the_pid_file(
    folder: Path, postgres: EmbeddedPostgres
) -> None:
    async with EmbeddedPostgres(folder) as mine:
        await store(mine.dsn)
    owner = folder.stat()
    pid_file = folder / "postmaster.pid"
    pid_file.write_text(f"{postgres.pid}\n{folder}\n")
    os.chown(pid_file, owner.st_uid, owner.st_gid)
    await assert_kept(folder)
    assert is_running(postgres.pid)
