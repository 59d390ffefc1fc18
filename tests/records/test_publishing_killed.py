"""The node that publishes a table is killed at each step, under writers: the topic has each message once."""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.process.nodes import clean_environment
from tests.records.replayed import PATIENCE_S, TOPIC, replay
from tests.records.site import Site, opened_site

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.core.records.snapshot import Snapshot
from moorline.records.publication_message import unpacked

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "roles": ["broker", "records"],
    "streams": {"shards": 3, "sync": "process"},
    "queues": {"sync": "process"},
}
KEYS = 60


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def write(site: Site, seed: int) -> None:
    """Rows come, change, change their keys and go, alone and several in a transaction."""
    rng = random.Random(seed)
    connection = await asyncpg.connect(site.dsn)
    try:
        while True:
            with contextlib.suppress(asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError):
                async with connection.transaction():
                    for _ in range(rng.choice((1, 1, 2, 8))):
                        await connection.execute(statement(rng))
            await asyncio.sleep(rng.random() / 100)
    finally:
        await connection.close()


def statement(rng: random.Random) -> str:
    key, other = rng.randrange(KEYS), rng.randrange(KEYS)
    return rng.choice(
        (
            f"insert into things values ({key}, 1, 'NEW', '{rng.random()}') on conflict do nothing",
            f"update things set note = '{rng.random()}' where id = {key}",
            f"update things set note = '{rng.random()}' where id between {key} and {key + 5}",
            f"update things set id = {other} where id = {key}",
            f"delete from things where id = {key}",
        )
    )


@contextlib.asynccontextmanager
async def writing(site: Site, count: int = 4) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(write(site, seed)) for seed in range(count)]
    try:
        yield
        assert not any(task.done() for task in tasks), "they write to the end"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def died(site: Site, folder: Path, where: str, batches: int) -> None:
    """A node on the folder of the publication runs until it kills itself at that step."""
    settings = SETTINGS | {
        "data": str(folder / "node-1"),
        "node": "node-1",
        "catalog": site.dsn,
        "listen": ["tcp://127.0.0.1:0"],
        "http": "127.0.0.1:0",
    }
    words = [sys.executable, "-m", "tests.records.dying_node", json.dumps(settings), where]
    node = await asyncio.create_subprocess_exec(
        *words,
        str(batches),
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=(folder / "dying.stderr").open("ab"),
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            code = await node.wait()
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
    assert code == -9, (folder / "dying.stderr").read_text()


async def batches(site: Site) -> int:
    return int(await site.connection.fetchval("select count(*) from moorline.publication_batch"))


async def settled(site: Site) -> int:
    """All that was written is published, and one more row, by which that is known: the number of messages."""
    xid = int(
        await site.connection.fetchval(
            "insert into things values (-1) on conflict (id) do update set note = random()::text "
            "returning moor_xid::text"
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        while True:
            row = await site.connection.fetchrow(
                "select sequence, snapshot from moorline.publication p "
                "where not exists (select from moorline.publication_batch b where b.publication = p.number)"
            )
            snapshot = row["snapshot"] if row is not None else None
            if snapshot is not None and not Snapshot.parse(snapshot).is_behind(xid):
                return int(row["sequence"])
            await asyncio.sleep(0.02)


async def check(site: Site, address: str) -> int:
    """The topic, replayed, is the table; how many snapshots are in it."""
    found = await replay(address, await settled(site))
    found.check_once()
    assert found.rows == await site.table()
    assert len(found.rows) > 1
    return found.kinds["snapshot"]


@pytest.mark.parametrize("where", ["stored", "half", "published"])
async def test_killed_at_a_step_under_four_writers(site: Site, tmp_path: Path, where: str) -> None:
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(0, 30) n")
    node = await site.node(**SETTINGS)
    async with moorline.connect(str(node.addresses[0]), reconnect=False) as moor:
        await moor.publish_table("things", TOPIC)
    await site.stop()
    async with writing(site):
        for number in (1, 4, 2):
            await died(site, tmp_path, where, number)
            assert await batches(site) == 1, "it was being published"
        node = await site.node(**SETTINGS)
    assert await check(site, str(node.addresses[0])) == 1, "one snapshot, whatever was killed"


async def test_killed_in_its_first_snapshot(site: Site, tmp_path: Path) -> None:
    """It has several batches: their order is not known any more, and the state begins anew."""
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 3500) n")
    node = await site.node(**SETTINGS)
    # Nothing is published yet: the batch of the first rows waits for this lock.
    blocker = await asyncpg.connect(site.dsn)
    lock = blocker.transaction()
    await lock.start()
    await blocker.execute("lock table moorline.publication_batch in exclusive mode")
    async with moorline.connect(str(node.addresses[0]), reconnect=False) as moor:
        await moor.publish_table("things", TOPIC)
    await site.stop()
    await lock.rollback()
    await blocker.close()
    await died(site, tmp_path, "half", 2)
    assert await batches(site) == 1
    node = await site.node(**SETTINGS)
    assert await check(site, str(node.addresses[0])) == 2


async def test_another_number_of_shards_begins_anew(site: Site, tmp_path: Path) -> None:
    """Whether a batch is in the streams is not known there: nothing more of it is published."""
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 50) n")
    node = await site.node(**SETTINGS)
    async with moorline.connect(str(node.addresses[0]), reconnect=False) as moor:
        await moor.publish_table("things", TOPIC)
        await settled(site)
    await site.stop()
    await site.execute("update things set note = 'half of them are published'")
    await died(site, tmp_path, "half", 1)
    stored = len(
        unpacked(await site.connection.fetchval("select body from moorline.publication_batch"))
    )
    assert stored > 1
    node = await site.node(**SETTINGS | {"streams": {"shards": 5, "sync": "process"}})
    count = await settled(site)
    address = str(node.addresses[0])
    # Of the batch in hand the second half was numbered, and never published.
    found = await replay(address, count - (stored - stored // 2))
    found.check_once()
    assert found.rows == await site.table()
    assert found.kinds["snapshot"] == 2
