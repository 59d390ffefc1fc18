"""`verify` on a real Spark: an archive that somebody changed is found out, named and repaired."""

import random
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import (
    archive_of,
    filled,
    messages_in,
    rewrite,
    sealed_files,
    source_of,
    table_of,
    told_by,
    verified,
)
from tests.spark.publishing import COUNT, message

from moorline.errors import ConfigError, DriftFound
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import Archive, archived
from moorline.spark.jobs.clean import clean
from moorline.spark.jobs.compare import ALTERED, EXTRA, MISSING, Difference
from moorline.spark.jobs.node_side import Told
from moorline.spark.jobs.tasks import TaskReader
from moorline.spark.jobs.verify import VerifyOptions, verify
from moorline.spark.jobs.verify_report import FileProblem, check
from moorline.spark.jobs.watching import Seen, nobody

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

__all__ = ["filled"]


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, filled: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    where = tmp_path_factory.mktemp("whole") / "archive"
    archive_of(spark, filled, where)
    return where


@pytest.fixture
def where(whole: Path, tmp_path: Path) -> Path:
    """A copy to do damage to."""
    return Path(shutil.copytree(whole, tmp_path / "archive"))


def test_what_was_archived_is_proven_by_the_seals_alone(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    report = verified(spark, filled, where)
    assert report.is_equal
    assert len(report.streams) == len(told_by(filled).seals) >= 3
    assert {one.proof for one in report.streams} == {"seal"}
    assert report.messages == sum(one.end - one.first for one in report.streams)
    check(report)


def test_every_kind_of_damage_is_found_and_repaired(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    removed, altered, gone = sealed_files(where, filled)[:3]
    table = table_of(where, removed)
    rewrite(where, removed, pa.concat_tables([table.slice(0, 5), table.slice(6)]))
    table = table_of(where, altered)
    values = table.column("value").to_pylist()
    values[3] = b"somebody else's"
    place = table.schema.get_field_index("value")
    changed = table.set_column(place, "value", pa.array(values, pa.binary()))
    rewrite(where, altered, pa.concat_tables([changed, table.slice(7, 2)]))
    (where / gone.path).unlink()

    report = verified(spark, filled, where)
    found = {one.stream: one for one in report.differing}
    assert set(found) == {str(file.stream) for file in (removed, altered, gone)}
    assert found[str(removed.stream)].counts == {MISSING: 1}
    offset = removed.first + 5
    assert found[str(removed.stream)].differences == [Difference(MISSING, offset, offset + 1)]
    assert found[str(altered.stream)].counts == {EXTRA: 2, ALTERED: 1}
    assert Difference(ALTERED, altered.first + 3, altered.first + 4) in (
        found[str(altered.stream)].differences
    )
    assert found[str(gone.stream)].counts == {MISSING: gone.rows}
    problems = {Path(one.path): one.text for one in report.files}
    assert problems.keys() == {where / file.path for file in (removed, altered, gone)}
    assert problems[where / gone.path] == "is gone"
    with pytest.raises(
        DriftFound, match=r"3 of .* differ .*; 3 files are not as written.*; --repair"
    ):
        check(report)

    repaired = verified(spark, filled, where, repair=True)
    assert repaired.is_equal
    assert (repaired.fetched, repaired.removed) == (1 + 1 + gone.rows, 2)
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]
    assert verified(spark, filled, where).is_equal


def test_a_flipped_byte_and_a_truncated_file_are_named(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    flipped, short = sealed_files(where, filled)[:2]
    data = bytearray((where / flipped.path).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (where / flipped.path).write_bytes(data)
    data = bytearray((where / short.path).read_bytes())
    (where / short.path).write_bytes(data[:-40])
    report = verified(spark, filled, where)
    problems = {Path(one.path): one.text for one in report.files}
    assert "bytes, not the" in problems[where / short.path]
    assert {one.stream for one in report.differing} == {str(flipped.stream), str(short.stream)}
    # Read from a data folder in place of the node, which need not run for that.
    options = VerifyOptions(str(where), {"path": str(filled.data)}, repair=True)
    assert verify(spark, options, told_by(filled)).is_equal
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]


def test_a_file_that_somebody_added_is_named_and_kept_until_somebody_says_otherwise(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    """The manifest does not count it, but whoever reads the folder by himself would."""
    file = sealed_files(where, filled)[0]
    added = [where / file.path.replace("part-", "copy-"), where / "copy.parquet"]
    for path in added:
        shutil.copy(where / file.path, path)
    report = verified(spark, filled, where)
    assert report.differing == []
    assert {one.path for one in report.files} == set(map(str, added))
    with pytest.raises(
        DriftFound, match=r"2 files are not as written.*is in no entry.*clean"
    ) as caught:
        check(report)
    assert "--repair" not in str(caught.value)
    assert not verified(spark, filled, where, repair=True).is_equal
    assert sorted(clean(str(where), is_meant=False).files) == sorted(
        str(path.relative_to(where)) for path in added
    )
    assert all(path.exists() for path in added)
    assert clean(str(where), is_meant=True).is_done
    assert not any(path.exists() for path in added)
    assert verified(spark, filled, where).is_equal
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]


def test_a_file_of_a_stream_that_still_grows_is_named_and_repaired_when_it_is_sealed(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    """The last seal of a shard is held back: its stream is, for the archive, one that still grows."""
    folder = where / "_moorline" / "seals"
    for path in folder.iterdir():
        path.unlink()
    all_told = told_by(filled)
    late = max(all_told.seals, key=lambda seal: seal.stream).stream
    early = Told(
        [seal for seal in all_told.seals if seal.stream != late],
        all_told.addresses,
        all_told.silent,
    )
    options = VerifyOptions(str(where), source_of(filled), repair=True)
    assert verify(spark, options, early).is_equal

    (file,) = (one for one in Archive(str(where)).live() if one.stream == late)
    data = (where / file.path).read_bytes()
    (where / file.path).write_bytes(data[:-40])
    report = verify(spark, options, early)
    text = f"has {len(data) - 40} bytes, not the {len(data)} that were written"
    assert report.files == [FileProblem(str(where / file.path), text, is_early=True)]
    assert not report.is_equal

    (where / file.path).unlink()
    report = verify(spark, options, early)
    assert report.files == [FileProblem(str(where / file.path), "is gone", is_early=True)]
    with pytest.raises(DriftFound, match=rf"{file.path} is gone; 1 file is of streams .*go.. on$"):
        check(report)
    with pytest.raises(DriftFound, match=rf"{file.path} is gone: `moor pipeline verify` says"):
        archived(spark, str(where))

    repaired = verify(spark, options, all_told)
    assert (repaired.is_equal, repaired.fetched) == (True, file.rows)
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]


def test_a_node_that_does_not_answer_is_no_node_that_lost_a_stream(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    file = sealed_files(where, filled)[0]
    rewrite(where, file, table_of(where, file).slice(1))
    options = VerifyOptions(str(where), source_of(filled), repair=True)
    report = verify(spark, options, Told([], {}, ["node-1"]))
    with pytest.raises(DriftFound, match=rf"{file.stream}: the node does not answer, start it$"):
        check(report)


def test_other_bytes_with_the_same_rows_are_found_and_written_anew(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    """Statistics in a footer that are not those of the rows: a filtered read would pass over these."""
    file = sealed_files(where, filled)[0]
    data = (where / file.path).read_bytes()
    at = data.rindex(struct.pack("<q", file.last))
    changed = data[:at] + struct.pack("<q", file.last - 1) + data[at + 8 :]
    (where / file.path).write_bytes(changed)
    assert table_of(where, file).num_rows == file.rows
    report = verified(spark, filled, where)
    assert report.differing == []
    path = str(where / file.path)
    assert report.files == [FileProblem(path, "has other bytes than were written")]
    with pytest.raises(DriftFound, match=r"other bytes than were written; --repair puts it right$"):
        check(report)
    # No node is needed for it: the rows are right.
    options = VerifyOptions(str(where), source_of(filled), repair=True)
    repaired = verify(spark, options, Told([], {}, []))
    assert (repaired.is_equal, repaired.fetched) == (True, 0)
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]


Work = Callable[[bytes], Iterator[object]]
Result = TypeVar("Result")


def run_here(
    spark: SparkSession,  # noqa: ARG001
    work: Work,
    items: Sequence[object],
    result: type[Result],
    seen: Seen = nobody,  # noqa: ARG001
) -> list[Result]:
    """As `tasks.run`, by what Spark's workers run, in this process: a hundred times as fast."""
    name = f"{work.__module__}:{work.__qualname__}"
    reader = TaskReader(name, msgspec.json.encode(items).decode())
    rows = [row for one in reader.partitions() for row in reader.read(one)]
    return [msgspec.json.decode(text, type=result) for (text,) in rows]


class Alteration(NamedTuple):
    name: Path
    how: str

    @property
    def is_harmless(self) -> bool:
        """A copy of a small file under a name that nobody reads; entries are all read."""
        is_small = self.name.suffix == ".json" and "entries" not in self.name.parts
        return self.how == "double" and is_small

    @property
    def is_mended(self) -> bool:
        """The rows may be right where the bytes are not: then the file is written anew."""
        return self.how == "flip" and self.name.suffix == ".parquet"


def altered(where: Path, names: list[Path], chance: random.Random) -> Alteration:
    name = chance.choice(names)
    how = chance.choice(["remove", "flip", "cut", "double"])
    target = where / name
    data = bytearray(target.read_bytes())
    if how == "remove":
        target.unlink()
    elif how == "flip":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        target.write_bytes(data)
    elif how == "cut":
        target.write_bytes(data[: chance.randrange(len(data))])
    else:
        shutil.copy(target, target.with_name(f"copy-{target.name}"))
    return Alteration(name, how)


def names_in(whole: Path) -> list[Path]:
    return sorted(
        path.relative_to(whole)
        for path in whole.rglob("*")
        if path.is_file()
        and not path.name.endswith((".crc", "lock"))
        and "checkpoint" not in path.parts
        and "receipts" not in path.parts
    )


def check_altered(
    spark: SparkSession, whole: Path, where: Path, streams: int, chance: random.Random
) -> Alteration:
    """Alters one file of a copy and verifies that; never called equal, and no intact file is removed."""
    shutil.copytree(whole, where)
    done = altered(where, names_in(whole), chance)
    target = where / done.name
    before = {path: path.read_bytes() for path in where.rglob("*.parquet") if path != target}
    # Who cannot ask the node has nothing but the archive.
    try:
        found = verify(spark, VerifyOptions(str(where), {}, repair=True), Told([], {}, []))
        is_proven = found.is_equal and len(found.streams) == streams
    except (DriftFound, ConfigError):
        is_proven = False
    assert not is_proven or done.is_harmless or done.is_mended, done
    for path, bytes_before in before.items():
        assert path.read_bytes() == bytes_before, done
    shutil.rmtree(where)
    return done


ROUNDS = 60


@pytest.mark.parametrize("seed", [20, 21, 22, 23, 24])
def test_any_one_file_that_is_altered_removed_or_doubled_is_found(
    spark: SparkSession,
    filled: NodeProcess,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """Many times, with what the workers run and without Spark around it."""
    monkeypatch.setattr(tasks, "run", run_here)
    chance, streams = random.Random(seed), len(told_by(filled).seals)
    unaltered = Path(shutil.copytree(whole, tmp_path / "unaltered"))
    report = verify(spark, VerifyOptions(str(unaltered), {}, repair=True), Told([], {}, []))
    assert (report.is_equal, len(report.streams)) == (True, streams), "it can be proven at all"
    done = [
        check_altered(spark, whole, tmp_path / "altered", streams, chance) for _ in range(ROUNDS)
    ]
    assert {one.how for one in done} == {"remove", "flip", "cut", "double"}
    assert {one.name.suffix for one in done} >= {".parquet", ".json"}


def test_an_altered_file_is_found_by_spark_too(
    spark: SparkSession, filled: NodeProcess, whole: Path, tmp_path: Path
) -> None:
    streams = len(told_by(filled).seals)
    for seed in (20, 21):
        check_altered(spark, whole, tmp_path / str(seed), streams, random.Random(seed))


def test_the_driver_holds_the_digests_of_few_streams_at_once(
    spark: SparkSession, filled: NodeProcess, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import moorline.spark.jobs.verify as job

    monkeypatch.setattr(job, "VERIFY_STREAMS_MAX", 2)
    removed, gone = sealed_files(where, filled)[0], sealed_files(where, filled)[-1]
    rewrite(where, removed, table_of(where, removed).slice(1))
    (where / gone.path).unlink()
    repaired = verified(spark, filled, where, repair=True)
    assert (repaired.is_equal, repaired.fetched) == (True, 1 + gone.rows)
    assert [one.stream for one in repaired.streams] == [
        str(stream) for stream in sorted(seal.stream for seal in told_by(filled).seals)
    ]


def test_some_topics_are_proven_by_reading_once_and_then_by_what_was_kept(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "some"
    archive_of(spark, filled, where, topics="orders/eu/#")
    first = verified(spark, filled, where)
    assert first.is_equal
    assert {one.proof for one in first.streams} == {"reading"}
    again = verified(spark, filled, where)
    assert {one.proof for one in again.streams} == {"seal"}
    assert again.messages == first.messages < sum(one.end - one.first for one in first.streams)

    file = sealed_files(where, filled)[0]
    table = table_of(where, file)
    rewrite(where, file, table.filter(pc.not_equal(table.column("offset"), file.last)))
    report = verified(spark, filled, where)
    assert [one.counts for one in report.differing] == [{MISSING: 1}]
    repaired = verified(spark, filled, where, repair=True)
    assert (repaired.is_equal, repaired.fetched) == (True, 1)


def test_streams_that_retention_took_are_proven_by_the_seals_that_were_kept(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    nothing = Told([], {}, [])
    options = VerifyOptions(str(where), source_of(filled), repair=True)
    report = verify(spark, options, nothing)
    assert report.is_equal
    assert not any(one.is_on_node for one in report.streams)

    file = sealed_files(where, filled)[0]
    rewrite(where, file, table_of(where, file).slice(1))
    report = verify(spark, options, nothing)
    assert [one.stream for one in report.differing] == [str(file.stream)]
    with pytest.raises(DriftFound, match=rf"{file.stream}: no node has it any more"):
        check(report)


def test_a_stream_that_is_not_archived_to_its_end_is_behind_and_not_wrong(
    spark: SparkSession, filled: NodeProcess, where: Path
) -> None:
    archive = Archive(str(where))
    folder = where / "_moorline" / "entries"
    entries = archive.entries()
    for path in folder.iterdir():
        path.unlink()
    for path in (where / "_moorline" / "receipts").iterdir():
        path.unlink()
    for entry in entries:
        archive.add(msgspec.structs.replace(entry, reached=dict.fromkeys(entry.reached, 1)))
    report = verified(spark, filled, where, repair=True)
    assert (report.differing, report.streams, report.files) == ([], [], [])
    assert report.behind == len(told_by(filled).seals)
    # Nothing is wrong, and nothing is proven: that is no success.
    assert not report.is_equal
    with pytest.raises(DriftFound, match=r"nothing is proven: .* not archived to their end"):
        check(report)


def test_there_must_be_an_archive(spark: SparkSession, filled: NodeProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no archive at"):
        verified(spark, filled, tmp_path)
