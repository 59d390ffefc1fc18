"""The manifest of an archive: which files count, and that a crash at any step leaves it whole."""

import os
from pathlib import Path

import pytest

from moorline.core.stream import Stream
from moorline.errors import ConfigError, DriftFound
from moorline.limits import ARCHIVE_ORPHAN_S
from moorline.spark.jobs.archive_files import Archive, Holdings, SealedStream, folder_of, stream_of
from moorline.spark.jobs.archive_location import OWN
from moorline.spark.jobs.clean import Cleaned, check, clean
from moorline.spark.jobs.manifest import (
    ArchivedFile,
    ArchiveGap,
    Entry,
    idle_entries,
    live_files,
    lost_ranges,
    reached,
)

STREAM = Stream("node-1", 3, 7)


def file(path: str, first: int = 0) -> ArchivedFile:
    return ArchivedFile(path, 10, 100, *STREAM, first, first + 9)


def batch(number: int, *paths: str) -> Entry:
    files = [file(path) for path in paths]
    return Entry(f"q-{number:06}", files, query="q", batch=number, reached={"node-1/3": number})


def paths(entries: list[Entry]) -> list[str]:
    return [one.path for one in live_files(entries)]


def test_a_file_counts_until_an_entry_replaces_it() -> None:
    entries = [batch(0, "a", "b"), batch(1, "c")]
    assert paths(entries) == ["a", "b", "c"]
    entries.append(Entry("compacted", [file("d")], replaced=["a", "c"]))
    assert paths(entries) == ["b", "d"]


def test_an_entry_goes_when_it_says_nothing_any_more() -> None:
    one = Entry("compacted-1", [file("d")], replaced=["a", "b"])
    assert idle_entries([batch(0, "a", "b"), batch(1, "c"), one]) == ["q-000000"]
    # While the first batch names what compaction replaced, its word is needed.
    partly = Entry("compacted-1", [file("d")], replaced=["a"])
    two = Entry("compacted-2", [file("e")], replaced=["d"])
    entries = [batch(0, "a", "b"), batch(1, "c"), partly, two]
    assert idle_entries(entries) == []
    assert paths(entries) == ["b", "c", "e"]


def test_entries_go_in_an_order_in_which_nothing_comes_back() -> None:
    one = Entry("compacted-1", [file("d")], replaced=["a"])
    two = Entry("compacted-2", [file("e")], replaced=["d"])
    entries = [batch(0, "a"), batch(1, "c"), one, two]
    live = paths(entries)
    order = idle_entries(entries)
    assert order == ["q-000000", "compacted-1"]
    for name in order:
        entries = [entry for entry in entries if entry.name != name]
        assert paths(entries) == live


def test_the_newest_batch_of_a_query_stays_for_spark_may_ask_for_it_again() -> None:
    entries = [batch(9, "a"), batch(10, "b"), Entry("compacted", [file("c")], replaced=["a", "b"])]
    assert idle_entries(entries) == ["q-000009"]
    assert reached(entries) == {"node-1/3": 10}


def test_an_entry_that_tells_of_a_loss_stays() -> None:
    gone = ArchiveGap("node-1/3", 10, 20, "retention took them")
    entries = [
        Entry("q-000000", [file("a")], query="q", batch=0, lost=[gone]),
        batch(1, "b"),
        Entry("compacted", [file("c")], replaced=["a", "b"]),
    ]
    assert idle_entries(entries) == []
    assert lost_ranges(entries) == {"node-1/3": [gone]}
    assert str(gone) == "10 messages of node-1/3, 10 to 19: retention took them"


def test_a_file_that_nobody_wrote_is_named_but_not_one_that_is_being_written(
    tmp_path: Path,
) -> None:
    archive = Archive(str(tmp_path))
    known, added, writing, left = (
        f"{folder_of(name, STREAM)}/{file_name}.parquet"
        for name, file_name in (
            ("q-000000", "known"),
            ("q-000000", "added"),
            ("q-000001", "writing"),
            ("q-000002", "left"),
        )
    )
    for name in (known, added, writing, left, "extra.parquet", "README.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    long_ago = (tmp_path / left).stat().st_mtime - 2 * ARCHIVE_ORPHAN_S
    for name in (left, "README.txt"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    archive.add(batch(0, known))
    assert archive.strays(archive.entries()) == [added, left, "extra.parquet"]
    # None of them is a job's to remove: it may be all that is left of an entry.
    assert archive.clean() == 0
    assert archive.strays(archive.entries()) == [added, left, "extra.parquet"]
    assert (tmp_path / "README.txt").exists()


def test_a_clean_removes_what_is_replaced_by_files_that_are_there(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    names = [f"{folder_of('q-000000', STREAM)}/{name}.parquet" for name in "abcd"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    a, b, old, new = names
    long_ago = (tmp_path / old).stat().st_mtime - 2 * ARCHIVE_ORPHAN_S
    os.utime(tmp_path / old, (long_ago, long_ago))
    archive.add(batch(0, a))
    archive.add(batch(1, b))
    archive.add(Entry("compacted", [file(b)], replaced=[a]))
    # While what replaces it is away, it may be the only copy.
    (tmp_path / b).rename(tmp_path / "away")
    assert archive.clean() == 0
    (tmp_path / "away").rename(tmp_path / b)
    assert archive.clean() == 1
    # A file that no entry names is left, however old.
    left = sorted(path.name for path in tmp_path.rglob("*.parquet"))
    assert left == ["b.parquet", "c.parquet", "d.parquet"]
    assert [one.path for one in archive.live()] == [b]
    assert archive.clean() == 0
    assert (tmp_path / new).exists()


def test_an_entry_that_is_not_whole_is_an_error_with_its_name(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.add(batch(0, "a"))
    (tmp_path / OWN / "entries" / "q-000000.json").write_text('{"name": "q-0')
    with pytest.raises(DriftFound, match=r"1 of the entries .* are not as written \(q-000000\)"):
        archive.entries()


def test_a_write_that_a_crash_cut_short_is_not_seen(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.add(batch(0, "a"))
    (tmp_path / OWN / "entries" / "q-000001.json.1234.new").write_text('{"na')
    assert [entry.name for entry in archive.entries()] == ["q-000000"]


def test_an_entry_that_is_gone_changed_or_doubled_is_never_passed_over(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.open(Holdings("parquet", ["#"]))
    for number in range(3):
        archive.add(batch(number, f"{number}"))
    folder = tmp_path / OWN / "entries"
    one = folder / "q-000001.json"
    data = one.read_bytes()
    one.unlink()
    with pytest.raises(DriftFound, match=r"gone \(q-000001\).*bring them back from a copy"):
        archive.live()
    with pytest.raises(DriftFound, match=r"gone \(q-000001\)"):
        archive.has_entry("q-000001")
    assert not archive.has_entry("q-000003")
    one.write_bytes(data.replace(b'"rows":10', b'"rows":11'))
    with pytest.raises(DriftFound, match="not as written"):
        archive.clean()
    one.write_bytes(data)
    (folder / "copy.json").write_bytes(data)
    with pytest.raises(DriftFound, match=r"not as written \(copy\)"):
        archive.entries()
    (folder / "copy.json").unlink()
    assert [entry.name for entry in archive.entries()] == [f"q-{number:06}" for number in range(3)]

    # All of them gone is not an archive without any; and neither is one that lost what it is of.
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(DriftFound, match="3 of the entries"):
        archive.entries()
    (tmp_path / OWN / "archive.json").unlink()
    with pytest.raises(DriftFound, match=r"archive\.json is gone, and entries are there"):
        archive.open(Holdings("parquet", ["#"]))


def test_a_writer_that_was_killed_before_its_receipt_has_written(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.add(batch(0, "a"))
    archive.add(batch(1, "b"))
    receipts = tmp_path / OWN / "receipts"
    for path in receipts.glob("q-000001*"):
        path.unlink()
    assert paths(archive.entries()) == ["a", "b"]
    archive.complete_receipts()
    assert len(list(receipts.iterdir())) == 2


def test_what_nobody_claims_is_removed_only_when_that_is_meant(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.open(Holdings("parquet", ["#"]))
    mine, lost = (f"{folder_of(f'q-00000{number}', STREAM)}/x.parquet" for number in range(2))
    for number, name in enumerate((mine, lost)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
        archive.add(batch(number, name))
    assert clean(str(tmp_path), is_meant=True) == Cleaned([], [], [])
    (tmp_path / OWN / "entries" / "q-000001.json").unlink()
    found = clean(str(tmp_path), is_meant=False)
    assert found == Cleaned([lost], ["q-000001"], [])
    with pytest.raises(DriftFound, match="1 files that no entry names, 1 entries that are gone"):
        check(found)
    assert (tmp_path / lost).exists()
    done = clean(str(tmp_path), is_meant=True)
    assert done.is_done
    check(done)
    assert not (tmp_path / lost).exists()
    assert (tmp_path / mine).exists()
    assert paths(archive.entries()) == [mine]


def test_a_record_of_seals_that_was_edited_is_named_and_not_believed(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    seal = SealedStream(*STREAM, 0, 10, "00" * 24)
    archive.note_seals([seal])
    (record,) = (tmp_path / OWN / "seals").iterdir()
    record.write_text(record.read_text().replace('"end":10', '"end":11'))
    assert archive.seals() == {}
    assert archive.edited_seals() == [f"{OWN}/seals/{record.name}"]
    archive.note_seals([seal])
    archive.set_aside(archive.edited_seals()[0])
    assert (archive.seals(), archive.edited_seals()) == ({STREAM: seal}, [])


def test_an_archive_is_of_what_it_was_made_for(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "new"))
    with pytest.raises(ConfigError, match="there is no archive at"):
        archive.holdings()
    made = archive.open(Holdings("parquet", ["orders/#"]))
    assert len(made.id) == 32
    assert archive.open(Holdings("parquet", ["orders/#"])) == archive.holdings() == made
    with pytest.raises(ConfigError, match=r"is parquet of orders/#, not parquet of #"):
        archive.open(Holdings("parquet", ["#"]))
    with pytest.raises(ConfigError, match="is no place for an archive"):
        Archive("nonsense://somewhere")


def test_one_at_a_time_in_a_folder(tmp_path: Path) -> None:
    one, other = Archive(str(tmp_path)), Archive(str(tmp_path))
    with (
        one.alone(f"{OWN}/lock", "somebody is here"),
        pytest.raises(ConfigError, match="somebody is here"),
        other.alone(f"{OWN}/lock", "somebody is here"),
    ):
        raise AssertionError("there are two")
    with other.alone(f"{OWN}/lock", "somebody is here"):
        pass


def test_seals_are_kept_and_the_last_word_holds(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    seal = SealedStream(*STREAM, 0, 10, "00" * 24)
    archive.note_seals([seal])
    archive.note_seals([seal])
    folder = tmp_path / OWN / "seals"
    assert len(list(folder.iterdir())) == 1
    chosen = SealedStream(*STREAM, 0, 10, "00" * 24, "11" * 24)
    archive.note_seals([chosen])
    # What the node says again does not forget what was computed.
    archive.note_seals([seal])
    assert archive.seals() == {STREAM: chosen}


def test_a_folder_says_which_stream_it_is_of() -> None:
    assert stream_of(f"{folder_of('x', STREAM)}/part.parquet") == STREAM
    odd = Stream("a b/c", 0, 1)
    assert stream_of(f"{folder_of('x', odd)}/part.parquet") == odd
    with pytest.raises(DriftFound, match="is not where a file of a stream would be"):
        stream_of("batch=1/part.parquet")
