"""Numbers of transactions pass 2^32, where those in the rows of Postgres begin anew: nobody is synced for
that, and nothing is missed. A private cluster is led there, as years of writing would."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.records.bed import Bed, Copy
from tests.records.clients import Held, client
from tests.records.servers import Server, found_versions
from tests.records.site import Site, opened_site, url_of

from moorline.catalog import EmbeddedPostgres
from moorline.records.checking import check
from moorline.records.database import Database
from moorline.records.opening import open_capture
from moorline.records.pruning import prune
from moorline.records.registration import registrations
from moorline.records.renewal import renew

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FAR = "create table far (id bigint primary key, workspace_id integer, state text, note text)"
PROGRAMS = found_versions()
ROUND = 1 << 32
"""Of the 32 bits that a row of Postgres has for a number: an epoch."""
ON_THE_WAY = (1_900_000_000, 3_700_000_000, ROUND - 150)
"""Never half a round at once: what is older than that would be in the future."""
SEGMENT = 1 << 20
"""Transactions in a file of pg_xact."""


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def lead_to(server: Server, number: int) -> None:
    """The next transaction has this number. All rows are frozen before, as autovacuum would have done."""
    for database in ("postgres", "template1", "template0"):
        connection = await asyncpg.connect(server.dsn, database=database)
        await connection.execute("vacuum (freeze)")
        await connection.close()
    await server.stop()
    states = server.folder / "pg_xact" / f"{number // SEGMENT:04X}"
    states.write_bytes(bytes(SEGMENT // 4))
    owner = server.folder.stat()
    shutil.chown(states, owner.st_uid, owner.st_gid)
    await server.run("pg_resetwal", "-x", str(number), "-D", str(server.folder))
    await server.start()


async def xid(connection: asyncpg.Connection) -> int:
    return int(await connection.fetchval("select pg_snapshot_xmax(pg_current_snapshot())::text"))


async def write_until(connection: asyncpg.Connection, number: int) -> None:
    """Each in a transaction of its own."""
    while await xid(connection) < number:
        await connection.execute(
            "update far set note = note || '.' where id = 1 + moor_seq % 20 or id = 3"
        )


@pytest.mark.skipif("18" not in PROGRAMS, reason="the programs of Postgres 18 are not here")
async def test_numbers_of_transactions_go_round(site: Site, tmp_path: Path) -> None:
    async with Server(tmp_path / "own", PROGRAMS["18"]) as server:
        connection = await asyncpg.connect(server.dsn)
        await connection.execute("alter database template0 allow_connections true")
        async with Database.open(server.dsn) as database:
            bed = Bed(server.dsn, connection, database, "log")
            await bed.execute(FAR)
            await bed.add("far")
            await bed.execute(
                "insert into far select n, 1, 'NEW', '' from generate_series(1, 20) n"
            )
            async with bed.copy("far") as ancient:
                pass
        await connection.close()
        for number in ON_THE_WAY:
            await lead_to(server, number)
        address = tmp_path / "own.address"
        address.write_text(server.dsn)
        node = await site.node(records={"databases": [f"own={address}"]})
        connection = await asyncpg.connect(server.dsn)
        there = Site(server.dsn, tmp_path, connection)
        async with Database.open(server.dsn) as database:
            await _across(there, database, ancient, url_of(node))
        await connection.close()


async def _across(site: Site, database: Database, ancient: Copy, url: str) -> None:
    connection = site.connection
    bed = Bed(site.dsn, connection, database, "log")
    live, away = Held("far"), Held("far")
    async with (
        bed.another() as open_one,
        open_capture(database, "far") as capture,
        bed.copy("far") as copy,
        client(url, live) as made,
    ):
        await site.equal(live, table="far")
        async with client(url, away):
            await site.equal(away, table="far")
        away.left()
        # Begun below the end of the round, and committed behind it.
        transaction = open_one.transaction()
        await transaction.start()
        await open_one.execute("update far set state = 'LATE' where id = 20")
        await write_until(connection, ROUND - 20)
        await copy.step()
        await bed.check(copy, "far")
        await write_until(connection, ROUND + 50)
        await copy.step()
        await bed.check(copy, "far")
        await transaction.commit()
        assert [change.key for change in await copy.step()] == [("20",)]
        await bed.check(copy, "far")
        assert copy.resyncs == []
        await site.equal(live, table="far")
        assert live.hows == ["full", *["live"] * (len(live.hows) - 1)]
        assert (live.drifts, made.close_code) == (0, None)
        async with client(url, away):
            await site.equal(away, table="far")
        assert (away.hows[0], away.drifts) == ("replay", 0)
        # From before all of that, four thousand million transactions ago.
        ancient.capture = capture
        await ancient.step()
        await bed.check(ancient, "far")
        assert ancient.resyncs == []
        # No row is taken for one that met no trigger, nor for one that is still to come.
        assert await check(connection, "far") == []
        (registration,) = await registrations(connection, "far")
        await prune(connection, registration, 3_600)
        before = await connection.fetch("select id, moor_seq from far order by id")
        await renew(connection, "far", is_touching=True)
        assert await connection.fetch("select id, moor_seq from far order by id") == before
