"""The cache of a copy: across restarts, altered, damaged, foreign, in use, and on a disk that is full."""

import asyncio
import logging
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.client.records.conftest import is_equal, kinds, opened, read
from tests.client.records.table_node import NAMED, ServedTable, TableNode
from tests.waiting import until

import moorline
from moorline.client.records.asked import Asked
from moorline.client.records.cache import RowCache
from moorline.client.records.rows import Facts
from moorline.errors import ConfigError, FolderInUse, FolderUnusable

ASKED = Asked.of("t", {"a": 1})
FACTS = Facts(("id",), (("id", "bigint"), ("state", "text")))


def filled(path: Path, rows: int = 10) -> None:
    cache = RowCache(path, ASKED)
    assert cache.open() is None
    cache.write([((str(n),), (n, b"\x80")) for n in range(rows)], FACTS, 7, "cursor")
    cache.close()


def altered(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    filled(path)
    cache = RowCache(path, ASKED)
    contents = cache.open()
    assert contents is not None
    assert contents.facts == FACTS
    assert (contents.salt, contents.cursor) == (7, "cursor")
    assert contents.rows == {(str(n),): (n, b"\x80") for n in range(10)}
    cache.write([(("3",), None), (("4",), (99, b"\x81"))], FACTS, 7, "next")
    cache.close()
    again = RowCache(path, ASKED).open()
    assert again is not None
    assert again.cursor == "next"
    assert ("3",) not in again.rows
    assert again.rows[("4",)] == (99, b"\x81")
    assert cache.set_aside is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "statement",
    [
        "delete from held where seq = 3",
        "update held set seq = 4 where seq = 3",
        "update held set row = x'81' where seq = 3",
        "update held set row = 'text' where seq = 3",
        "insert into held values (x'00', 1, x'80')",
        "update about set check_count = 11",
        "update about set facts = x'c1'",
        "update about set salt = 'x'",
        "delete from about",
        "drop table held",
        "pragma user_version = 9",
    ],
)
def test_a_cache_that_somebody_altered_is_set_aside_and_named(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "cache"
    filled(path)
    altered(path, statement)
    cache = RowCache(path, ASKED)
    assert cache.open() is None
    assert cache.set_aside is not None
    assert cache.set_aside.path == tmp_path / "cache.aside-1"
    assert cache.set_aside.path.exists(), "nothing is deleted"
    cache.write([(("1",), (1, b"\x80"))], FACTS, 7, "new")
    cache.close()
    found = RowCache(path, ASKED).open()
    assert found is not None
    assert len(found.rows) == 1


@pytest.mark.parametrize("data", [b"no database" * 100, b"SQLite format 3\0" + bytes(4_000)])
def test_bytes_that_are_no_cache_are_set_aside(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cache"
    path.write_bytes(data)
    cache = RowCache(path, ASKED)
    assert cache.open() is None
    assert cache.set_aside is not None
    assert cache.set_aside.path.read_bytes() == data
    cache.close()


def test_a_cache_that_is_cut_anywhere_is_never_taken_for_less(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    filled(path, 500)
    whole = path.read_bytes()
    for size in range(0, len(whole), 1_021):
        cut = tmp_path / f"cut-{size}"
        cut.write_bytes(whole[:size])
        cache = RowCache(cut, ASKED)
        assert cache.open() is None
        assert (cache.set_aside is None) == (size == 0), size
        cache.close()


def test_that_of_another_filter_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    filled(path)
    other = RowCache(path, Asked.of("t", {"a": 2}))
    assert other.open() is None
    assert other.set_aside is not None
    assert "another table, filter or columns" in other.set_aside.why
    other.close()


def test_the_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "thesis"
    altered(path, "create table chapters (text)")
    with pytest.raises(ConfigError, match="another program"):
        RowCache(path, ASKED).open()
    assert [one.name for one in tmp_path.iterdir()] == ["thesis"]


def test_one_that_is_in_use_is_not_taken_for_damaged(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    filled(path)
    first, second = RowCache(path, ASKED), RowCache(path, ASKED)
    first.open()
    with pytest.raises(FolderInUse, match="which is open"):
        second.open()
    first.close()
    assert second.open() is not None
    second.close()


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match="No such file"):
        RowCache(tmp_path / "missing" / "cache", ASKED).open()


# --- with a node ----------------------------------------------------------------------------------


async def test_a_cache_survives_and_only_changes_come(
    node: TableNode, served: ServedTable, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    async with opened(node, cache=path) as table:
        assert is_equal(table, served)
        served.put(1, "LIVE")
        node.publish()
        await until(lambda: is_equal(table, served))
    served.put(2, "AWAY")
    served.delete(3)
    async with opened(node, cache=path) as table:
        assert node.hows == ["full", "live", "replay"]
        assert is_equal(table, served)
    served.put(4, "LONG AWAY")
    served.forgotten = len(served.log)
    async with opened(node, cache=path) as table:
        assert node.hows[-1] == "digest"
        assert is_equal(table, served)
    async with opened(node, cache=path) as table:
        assert node.hows[-1] == "replay"
        assert is_equal(table, served)


async def test_without_waiting_the_rows_of_the_cache_are_there_at_once(
    node: TableNode, served: ServedTable, tmp_path: Path
) -> None:
    async with opened(node, cache=tmp_path / "cache"):
        pass
    node.refuses = ("BUSY", 10)
    async with opened(node, cache=tmp_path / "cache", wait=False) as table:
        assert len(table.rows) == 10
        assert not table.is_synced
        node.refuses = None
        await asyncio.wait_for(table.synced(), 30)
        assert is_equal(table, served)


async def test_a_cache_altered_together_with_its_check_is_found_by_the_nodes_digest(
    node: TableNode, served: ServedTable, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    async with opened(node, cache=path):
        pass
    forged(path, {"where": {}})
    async with opened(node, cache=path, wait=False) as table:
        changes = table.changes()
        found = await read(changes, 5)
        assert kinds(found)[0] == "drifted"
        await until(lambda: table.is_synced)
        assert table.cache_set_aside is None
        assert is_equal(table, served)
    async with opened(node, cache=path) as table:
        assert node.hows[-1] == "replay"
        assert is_equal(table, served)


def forged(path: Path, asked: dict[str, Any]) -> None:
    """Takes a row out, makes another one older, and makes the check right again."""
    cache = RowCache(path, Asked.of(NAMED, asked["where"]))
    contents = cache.open()
    assert contents is not None
    row = contents.rows[("5",)]
    cache.write(
        [(("4",), None), (("5",), (row[0] + 1_000, row[1]))],
        contents.facts,
        contents.salt,
        contents.cursor,
    )
    cache.close()


async def test_a_damaged_cache_is_named_and_everything_comes_anew(
    node: TableNode, served: ServedTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache"
    async with opened(node, cache=path):
        pass
    altered(path, "update held set row = x'80' where key = (select min(key) from held)")
    with caplog.at_level(logging.WARNING, "moorline.client"):
        async with opened(node, cache=path) as table:
            assert table.cache_set_aside == tmp_path / "cache.aside-1"
            assert node.hows == ["full", "full"]
            assert is_equal(table, served)
    assert "a cache was set aside" in caplog.text


async def test_rows_that_may_not_be_seen_any_more_leave_the_cache(
    node: TableNode, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    async with opened(node, cache=path) as table:
        node.refuses = ("NO_SUCH_TABLE", 60_000)
        node.cut()
        await until(lambda: table.refusal is not None)
    with sqlite3.connect(path) as db:
        assert db.execute("select count(*) from held").fetchone() == (0,)
    db.close()


async def test_a_long_sync_that_was_cut_is_in_the_cache(
    node: TableNode, served: ServedTable, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    for key in range(1_000):
        served.put(key, "NEW")
    node.cut_after = 700
    slow = moorline.RecordSettings(return_ms=600_000, return_ms_max=600_000)
    async with (
        moorline.connect(node.address) as moor,
        moor.records(NAMED, cache=path, wait=False, settings=slow) as table,
    ):
        await until(lambda: node.cut_after is None and not table.is_connected and table.rows)
    async with opened(node, cache=path) as table:
        assert node.hows == ["full", "digest"]
        assert is_equal(table, served)


async def test_a_cache_that_cannot_be_written_is_told_of_and_the_copy_goes_on(
    node: TableNode, served: ServedTable, tmp_path: Path
) -> None:
    path = tmp_path / "cache"
    async with opened(node, cache=path) as table:
        changes = table.changes()
        await until(lambda: table._cache is not None and table._cache._writing is None)
        db = table._cache._cache._db  # type: ignore[union-attr]
        assert db is not None
        (pages,) = db.execute("pragma page_count").fetchone()
        db.execute(f"pragma max_page_count = {pages}")  # as on a full disk
        for key in range(100, 600):
            served.put(key, "x" * 100)
        node.publish()
        found = await read(changes, 501)
        assert kinds(found)[-1] == "cache_lost"
        assert "full" in found[-1].why
        assert is_equal(table, served)
    async with opened(node, cache=path) as table:
        assert node.hows[-1] == "replay", "it is an older copy, and whole"
        assert is_equal(table, served)


async def test_a_copy_with_a_cache_keeps_its_filter(node: TableNode, tmp_path: Path) -> None:
    async with opened(node, cache=tmp_path / "cache") as table:
        with pytest.raises(ConfigError, match="keeps its filter"):
            await table.change({"workspace_id": 1})
