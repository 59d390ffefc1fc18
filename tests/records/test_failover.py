"""The primary dies, a real standby is promoted: what it had not got is gone, its numbers come anew."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.records.clients import PATIENCE_S, Held, client
from tests.records.servers import PORT, Server, found_versions
from tests.records.site import Site, opened_site, url_of

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.catalog.datafolder import SUPERUSER

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SOON = moorline.RecordSettings(return_ms=50, return_ms_max=500)
FAR = "create table far (id bigint primary key, workspace_id integer, state text, note text)"
PROGRAMS = found_versions()


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def standby_of(primary: Server, folder: Path) -> Server:
    """As an operator makes one: a base backup that follows the primary."""
    standby = Server(folder, primary.programs)
    await standby.own()
    arguments = f"-h {primary.sockets} -p {PORT} -U {SUPERUSER} -D {folder} -R -X stream".split()
    await standby.run("pg_basebackup", *arguments)
    await standby.start()
    return standby


async def caught_up(primary: asyncpg.Connection, standby: Server) -> None:
    place = await primary.fetchval("select pg_current_wal_lsn()::text")
    connection = await asyncpg.connect(standby.dsn)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await connection.fetchval(
                "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", place
            ):
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


@pytest.mark.skipif("18" not in PROGRAMS, reason="the programs of Postgres 18 are not here")
async def test_a_standby_that_lacks_the_last_commits_takes_over(site: Site, tmp_path: Path) -> None:
    way = tmp_path / "way"
    address = tmp_path / "own.address"
    address.write_text(f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={way}&port={PORT}")
    held = Held("far")
    async with Server(tmp_path / "first", PROGRAMS["18"]) as first:
        way.symlink_to(first.sockets)
        there = Site(first.dsn, tmp_path, await asyncpg.connect(first.dsn))
        await there.execute(FAR)
        await there.register("far")
        await there.execute("insert into far select n, 1, 'NEW' from generate_series(1, 500) n")
        standby = await standby_of(first, tmp_path / "second")
        try:
            await caught_up(there.connection, standby)
            node = await site.node(records={"databases": [f"own={address}"]})
            async with (
                client(url_of(node), held) as made,
                moorline.connect(str(node.addresses[0])) as moor,
                moor.records("far", settings=SOON) as table,
            ):
                await there.equal(held, table="far")
                # The clients hear of what the standby never does.
                await standby.stop()
                await there.execute(
                    "update far set note = 'lost' where id <= 10",
                    "delete from far where id = 20",
                    "insert into far values (900, 1, 'LOST')",
                )
                await there.equal(held, table="far")
                await there.connection.close()
                await first.stop(signal.SIGKILL)
                await standby.start()
                there.connection = await asyncpg.connect(standby.dsn)
                assert await there.connection.fetchval("select pg_promote()")
                # The same numbers are given once more, to other changes of the same rows.
                await there.execute(
                    "update far set note = 'kept' where id between 5 and 15",
                    "insert into far values (901, 1, 'NEW')",
                )
                way.unlink()
                way.symlink_to(standby.sockets)
                await there.equal(held, table="far")
                async with asyncio.timeout(PATIENCE_S):
                    while {
                        (str(key),): (table.rows.seq(key), table.rows[key]) for key in table.rows
                    } != await there.table(table="far"):
                        await asyncio.sleep(0.05)
                assert 20 in table.rows
                assert 900 not in table.rows
                assert made.close_code is None, "its link was kept"
                await there.execute("update far set note = 'on' where id = 1")
                await there.equal(held, table="far")
            await there.connection.close()
        finally:
            await standby.stop()
