"""The embedded Postgres where nothing goes wrong, and where it cannot start."""

# ruff: noqa: ASYNC240 - a test has its loop to itself and may wait for the disk

import os
import stat
import tempfile
from pathlib import Path

import asyncpg
import pytest
from tests.catalog.processes import is_running, processes_with

from moorline.catalog import EmbeddedPostgres, datafolder, embedded
from moorline.catalog.datafolder import essence, failure
from moorline.errors import CatalogUnreachable, DiskFull, FolderUnusable

pytestmark = pytest.mark.process


async def ask(postgres: EmbeddedPostgres, sql: str) -> object:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_first_start_and_stop(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        assert await ask(postgres, "select 1") == 1
        assert await ask(postgres, "show server_version_num") >= "180000"  # type: ignore[operator]
        assert await ask(postgres, "show server_encoding") == "UTF8"
        assert await ask(postgres, "show listen_addresses") == ""
        assert await ask(postgres, "show fsync") == "on"
        readers = "select count(*) from pg_stat_activity where backend_type = 'io worker'"
        assert await ask(postgres, readers) == 0
        run = folder.parent / "run"
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.parent.stat().st_uid == os.geteuid()
        pid = postgres.pid
    assert not is_running(pid)
    assert not run.exists()
    assert {entry.name for entry in folder.parent.iterdir()} == {"catalog", "catalog.log"}


async def test_second_start_keeps_what_was_stored(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        await ask(postgres, "create table kept as select 42 as answer")
    async with EmbeddedPostgres(folder) as postgres:
        assert await ask(postgres, "select answer from kept") == 42


async def test_stop_ends_a_client_that_hangs_on(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("begin")
        pid = postgres.pid
    assert not is_running(pid)
    connection.terminate()


@pytest.mark.parametrize("odd", ["x" * 120, "a, b 'c' \"d\" %41 ü"])
async def test_folder_that_no_socket_path_can_hold(tmp_path: Path, odd: str) -> None:
    folder = tmp_path / odd / "catalog"
    run = folder.parent / "run"
    async with EmbeddedPostgres(folder) as postgres:
        assert await ask(postgres, "select 1") == 1
        socket_folder = run.resolve()
        assert socket_folder.parent == Path(tempfile.gettempdir()).resolve()
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
        assert str(socket_folder) in postgres.dsn
    assert not socket_folder.exists()
    assert not run.is_symlink()


async def test_socket_folder_of_a_killed_node_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120) / "catalog"
    folder.parent.mkdir()
    lost = Path(tempfile.mkdtemp(prefix="moorline-"))
    (folder.parent / "run").symlink_to(lost)
    async with EmbeddedPostgres(folder):
        assert not lost.exists()


async def test_two_on_two_folders(tmp_path: Path) -> None:
    async with (
        EmbeddedPostgres(tmp_path / "one" / "catalog") as one,
        EmbeddedPostgres(tmp_path / "two" / "catalog") as two,
    ):
        await ask(one, "create table mine as select 1 as number")
        assert await ask(two, "select to_regclass('mine') is null")


async def test_large_log_is_set_aside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafolder, "CATALOG_LOG_BYTES_MAX", 1_000)
    folder.parent.mkdir(parents=True)
    log = folder.with_name("catalog.log")
    log.write_text("old\n" * 1_000)
    async with EmbeddedPostgres(folder):
        assert "old" not in log.read_text()
    assert "old" in folder.with_name("catalog.log.old").read_text()


async def test_data_folder_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="choose another data folder"):
        async with EmbeddedPostgres(tmp_path / "file" / "catalog"):
            pass


async def test_folder_with_other_files_is_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(FolderUnusable, match="holds files but no Postgres catalog"):
        async with EmbeddedPostgres(folder):
            pass
    assert (folder / "thesis.txt").read_text() == "mine"


async def test_empty_folder_is_taken(folder: Path) -> None:
    folder.mkdir(parents=True)
    async with EmbeddedPostgres(folder) as postgres:
        assert await ask(postgres, "select 1") == 1


async def test_folder_of_another_postgres_version(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "PG_VERSION").write_text("16\n")
    with pytest.raises(FolderUnusable, match="written by Postgres 16, this Moorline brings 18"):
        async with EmbeddedPostgres(folder):
            pass


async def test_postgres_that_ends_at_once_is_quoted(folder: Path) -> None:
    async with EmbeddedPostgres(folder):
        pass
    with (folder / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = on\n")
    with pytest.raises(CatalogUnreachable, match=r"FATAL.*configuration file .* contains errors"):
        async with EmbeddedPostgres(folder):
            pass
    assert not (folder.parent / "run").exists()


async def test_failed_initdb_leaves_only_its_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafolder, "INITDB_OPTIONS", ("--encoding=NONSENSE",))
    with pytest.raises(CatalogUnreachable, match=r"initdb failed.*NONSENSE"):
        async with EmbeddedPostgres(folder):
            pass
    assert [entry.name for entry in folder.parent.iterdir()] == ["catalog.log"]
    assert "NONSENSE" in folder.with_name("catalog.log").read_text()


async def test_postgres_that_does_not_answer_is_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "CATALOG_START_MS_MAX", 0)
    with pytest.raises(CatalogUnreachable, match="did not answer within"):
        async with EmbeddedPostgres(folder):
            pass
    assert processes_with(str(folder)) == []


def test_full_disk_and_closed_folder_are_told_apart() -> None:
    folder = Path("/data/catalog")
    full = "FATAL:  could not write lock file: No space left on device"
    told = failure("initdb failed", f"{full}\nPANIC:  cannot abort", folder)
    assert isinstance(told, DiskFull)
    assert (
        str(told) == f"initdb failed ({full}): make room on the device of /data, then start again."
    )
    closed = 'FATAL:  could not open file "PG_VERSION": Permission denied'
    assert isinstance(failure("x", closed, folder), FolderUnusable)
    assert isinstance(failure("x", "", folder), CatalogUnreachable)


def test_last_words_are_not_those_to_a_client() -> None:
    start = "2026-11-15 20:33:53.1 UTC"
    words = (
        f"{start} [1] postmaster LOG:  listening\n"
        f"{start} [2] startup FATAL:  the log is damaged\n"
        f"{start} [3] client backend FATAL:  the database system is starting up\n"
        f"{start} [1] postmaster LOG:  database system is shut down\n\n"
    )
    assert essence(words) == "startup FATAL:  the log is damaged"
    assert essence(words.replace("startup FATAL", "startup LOG")).endswith("is shut down")
    assert essence("\n") == "nothing"
