"""Restored dumps, other clusters, other timelines: noticed, and never taken for "nothing changed"."""

import asyncio
import subprocess
from pathlib import Path

import asyncpg
import pytest
from tests.catalog.databases import empty_database
from tests.records.bed import Bed

from moorline.catalog import EmbeddedPostgres
from moorline.catalog.datafolder import binaries
from moorline.errors import TableRestored
from moorline.records.checking import check
from moorline.records.database import Database
from moorline.records.opening import open_capture
from moorline.records.renewal import renew

pytestmark = pytest.mark.process


async def dump(source: str, target: str, folder: Path) -> None:
    """A real pg_dump, and a real pg_restore of it."""
    file = folder / "dump"
    for program, arguments in (
        ("pg_dump", ["--format=custom", f"--file={file}", "--dbname", source]),
        ("pg_restore", ["--no-owner", "--exit-on-error", "--dbname", target, str(file)]),
    ):
        done = await asyncio.to_thread(
            subprocess.run,
            [str(binaries() / program), *arguments],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


async def test_t29_and_t30_a_dump_restored_in_a_new_cluster_is_not_served_until_it_is_renewed(
    bed: Bed, tmp_path: Path
) -> None:
    await bed.things()
    # Numbers far beyond those of a new cluster: without care nobody would see these rows, for a long time.
    for number in range(200):
        await bed.execute(f"insert into things values ({number}, 1, 'a')")
    async with bed.copy() as copy:
        old_epoch, old_since = copy.capture.table.epoch, copy.since
    async with EmbeddedPostgres(tmp_path / "other") as other, Database.open(other.dsn) as database:
        await dump(bed.dsn, other.dsn, tmp_path)
        connection = await asyncpg.connect(other.dsn)
        try:
            assert [fault.code for fault in await check(connection, "things")] == ["restored"]
            with pytest.raises(TableRestored, match="renew"):
                async with open_capture(database, "things"):
                    pass
            renewed = await renew(connection, "things")
            assert await check(connection, "things") == []
            assert (
                await connection.fetchval(
                    "select count(*) from things where moor_xid <> '0' and moor_xid >= "
                    "pg_snapshot_xmax(pg_current_snapshot())"
                )
                == 0
            )
            restored = Bed(other.dsn, connection, database, bed.kind)
            async with restored.copy() as copy:
                assert copy.capture.table.epoch != old_epoch
                # A cursor of the other cluster, whatever its snapshot, is never answered with "nothing".
                resync = await copy.capture.replays(old_epoch, old_since)
                assert resync is not None
                await restored.check(copy)
                await restored.execute(
                    "update things set note = 'new' where id = 1", "insert into things values (999)"
                )
                assert len(await copy.step()) == 2
                # No number is given twice.
                assert copy.rows[("999",)][0] > 200
                await restored.check(copy)
            assert renewed.rows >= 0
        finally:
            await connection.close()


async def test_t30_rows_of_transactions_to_come_are_found_and_set_right(bed: Bed) -> None:
    """The numbers of another cluster, in this one: as if only the table had been restored."""
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'a'), (2, 1, 'a')")
    await bed.execute(
        "alter table things disable trigger all",
        "update things set moor_xid = '999999999999' where id = 1"
        if bed.kind == "notify"
        else "update things set moor_xid = '999999999999', moor_made = '999999999999' where id = 1",
        "alter table things enable always trigger zzz_moorline_stamp",
    )
    codes = {fault.code for fault in await check(bed.connection, "things")}
    assert codes == {"restored", "bypassed"}
    with pytest.raises(TableRestored, match="still to come"):
        async with open_capture(bed.database, "things"):
            pass
    assert (await renew(bed.connection, "things")).rows == 1
    assert await check(bed.connection, "things") == []
    async with bed.copy() as copy:
        await bed.execute("update things set note = 'x'")
        assert len(await copy.step()) == 2
        await bed.check(copy)


async def test_a_copy_of_the_database_is_another_one(bed: Bed, postgres: EmbeddedPostgres) -> None:
    """Within one cluster the numbers go on; what the cursors say is of the other table all the same."""
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'a')")
    target = await empty_database(postgres)
    await dump(bed.dsn, target, Path(postgres.dsn.split("host=")[1].split("&")[0]).parent)
    async with Database.open(target) as database:
        with pytest.raises(TableRestored):
            async with open_capture(database, "things"):
                pass


async def test_a_restart_of_postgres_is_no_other_epoch(tmp_path: Path) -> None:
    async with EmbeddedPostgres(tmp_path / "one") as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        async with Database.open(postgres.dsn) as database:
            bed = Bed(postgres.dsn, connection, database, "log")
            await bed.things()
            async with bed.copy() as copy:
                since, epoch = copy.since, copy.capture.table.epoch
                await bed.execute("insert into things values (1, 1, 'a')")
        await connection.close()
    async with (
        EmbeddedPostgres(tmp_path / "one") as postgres,
        Database.open(postgres.dsn) as database,
        open_capture(database, "things") as capture,
        capture.step(since) as step,
    ):
        assert capture.table.epoch == epoch
        assert [change.key async for part in step.changes() for change in part] == [("1",)]


async def test_a_registration_made_anew_is_another_epoch(bed: Bed) -> None:
    from moorline.records.registration import remove

    await bed.things()
    async with bed.copy() as copy:
        await remove(bed.connection, "things")
        await bed.add()
        await bed.execute("insert into things values (1, 1, 'a')")
        await bed.check_resynced(copy, "epoch")
