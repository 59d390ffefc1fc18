"""What a newer Moorline wrote is told by its name, in whatever place, and not touched."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from moorline.client.associations import Associations
from moorline.client.list_schema import VERSION as LIST_VERSION
from moorline.errors import FolderUnusable, FormatTooNew
from moorline.node.data_format import BEFORE, NAME, NEWEST, check_format, text_of_format
from moorline.node.folder import held, note_format
from moorline.spark.jobs.archive_files import ARCHIVE_VERSION, Archive, Checked, Holdings
from moorline.spark.jobs.archive_location import OWN
from moorline.spark.jobs.materialized import (
    TABLE_VERSION,
    MaterializedTable,
    TableState,
    path_of,
)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_folder_says_its_format_and_is_refused_by_earlier_programs(tmp_path: Path) -> None:
    assert check_format(tmp_path) == BEFORE
    with held(tmp_path):
        note_format(tmp_path)
    assert (tmp_path / NAME).read_text() == text_of_format()
    assert check_format(tmp_path) == NEWEST
    note_format(tmp_path)
    (tmp_path / NAME).write_text(f"moorline-data {NEWEST + 1}\n")
    before = contents(tmp_path)
    with pytest.raises(FormatTooNew, match=f"format {NEWEST + 1}"), held(tmp_path):
        pytest.fail("it was let in")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "text", ["", "moorline-data", "moorline-data x", "2", f"moorline-data {10**12}"]
)
def test_a_damaged_note_is_told_and_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(FolderUnusable, match="does not say which formats"), held(tmp_path):
        pytest.fail("it was let in")
    assert (tmp_path / NAME).read_text() == text


def test_a_newer_archive(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    wanted = Holdings("parquet", ["#"])
    archive.open(wanted)
    archive.write_own(
        "archive.json", msgspec.structs.replace(archive.holdings(), version=ARCHIVE_VERSION + 1)
    )
    before = contents(tmp_path)
    for work in (archive.holdings, lambda: archive.open(wanted)):
        with pytest.raises(FormatTooNew, match="the archive at"):
            work()
    assert contents(tmp_path) == before


def test_a_newer_table(tmp_path: Path) -> None:
    table = MaterializedTable(str(tmp_path))
    table.commit(TableState(1, "tables/t", 4))
    assert table.latest() == TableState(1, "tables/t", 4)
    # Of a form that this one does not know.
    newer = {"number": 2, "version": TABLE_VERSION + 1, "buckets": "many"}
    table.write(path_of(2), Checked.of(msgspec.json.encode(newer)))
    before = contents(tmp_path)
    with pytest.raises(FormatTooNew, match="the table at"):
        table.latest()
    assert contents(tmp_path) == before
    assert (tmp_path / OWN).exists()


def test_a_newer_list_of_a_service(tmp_path: Path) -> None:
    file = tmp_path / "service.sqlite"
    Associations(file).close()
    with sqlite3.connect(file) as db:
        assert db.execute("pragma user_version").fetchone() == (LIST_VERSION,)
        db.execute(f"pragma user_version = {LIST_VERSION + 1}")
    db.close()
    before = file.read_bytes()
    with pytest.raises(FormatTooNew, match=r"service\.sqlite was written by a newer"):
        Associations(file)
    assert file.read_bytes() == before
