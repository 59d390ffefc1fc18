"""`archive` on a real Spark: every message once, whatever happens between two runs."""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import (
    archive_of,
    audit_lines_in,
    filled,
    messages_in,
    rewrite,
    sealed_files,
    source_of,
    table_of,
    told_by,
)
from tests.spark.publishing import COUNT, message, publish, ttl_s_of

from moorline.core.stream import Stream
from moorline.errors import BadTopic, ConfigError, DriftFound, JournalDamaged
from moorline.journal.streams.folder import FolderStreams
from moorline.spark.jobs.archive import Archived, ArchiveOptions, archive, check, check_format
from moorline.spark.jobs.archive_files import Archive, archived
from moorline.spark.jobs.archive_location import OWN
from moorline.spark.jobs.compaction import Compacted, compact
from moorline.spark.jobs.compare import LOST
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.jobs.node_side import ask
from moorline.spark.jobs.verify import VerifyOptions, verify

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

__all__ = ["filled"]


def test_formats_and_topics_that_are_refused(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="has no format 'nonsense'"):
        check_format(spark, "nonsense")
    with pytest.raises(ConfigError, match="csv cannot hold keys and values"):
        check_format(spark, "csv")
    check_format(spark, "orc")
    with pytest.raises(BadTopic, match="# stands alone"):
        archive_of(spark, filled, tmp_path / "other", topics="#/x")


class Made(NamedTuple):
    """An archive of several batches that nothing was done to yet, and what its run told of it."""

    where: Path
    done: Archived
    seen: list[tuple[int, int]]


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, filled: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    """For tests that read it, or take a copy: an archive knows its files by their names below it."""
    where, seen = tmp_path_factory.mktemp("made") / "archive", list[tuple[int, int]]()
    done = archive_of(
        spark,
        filled,
        where,
        seen=lambda done, total: seen.append((done, total)),
        messages_per_batch=900,
        compact=False,
    )
    return Made(where, done, seen)


def copy_of(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.where, tmp_path / "archive"))


def test_every_message_is_archived_once(
    spark: SparkSession, filled: NodeProcess, made: Made
) -> None:
    assert (made.done.messages, made.done.batches) == (COUNT, 3)
    # The bar knows from the beginning how far it is, and only moves on. It counts what is looked through.
    stored = COUNT + audit_lines_in(spark, filled)
    assert {total for _, total in made.seen} == {stored}
    assert sorted(made.seen) == made.seen
    assert made.seen[-1] == (stored, stored)
    assert messages_in(spark, made.where) == [message(number) for number in range(COUNT)]
    sealed = {seal.stream for seal in told_by(filled).seals}
    assert set(Archive(str(made.where)).seals()) == sealed


def test_run_after_run_nothing_is_lost_or_twice(
    spark: SparkSession, filled: NodeProcess, made: Made, tmp_path: Path
) -> None:
    where = copy_of(made, tmp_path)
    # Nothing is new, and what lies in many files is merged.
    many = len(sealed_files(where, filled))
    again = archive_of(spark, filled, where)
    assert (again.messages, again.batches) == (0, 0)
    assert again.compacted_files > again.compacted_into > 0
    streams = [file.stream for file in sealed_files(where, filled)]
    assert len(streams) == len(set(streams)) < many
    assert messages_in(spark, where) == [message(number) for number in range(COUNT)]
    sealed = {seal.stream for seal in told_by(filled).seals}
    assert compact(spark, Archive(str(where)), sealed) == Compacted()

    _crash_behind_the_entry(spark, filled, where)
    _crash_before_the_entry(spark, filled, where)
    _checkpoint_lost(spark, filled, where)


def _crash_behind_the_entry(spark: SparkSession, node: NodeProcess, where: Path) -> None:
    """Spark did not hear that the last batch was done: it comes again, and is not written again."""
    _last(where / OWN / "checkpoint" / "commits").unlink()
    files = [file.path for file in Archive(str(where)).live()]
    archive_of(spark, node, where, compact=False)
    assert [file.path for file in Archive(str(where)).live()] == files
    assert archived(spark, str(where)).count() == COUNT


def _crash_before_the_entry(spark: SparkSession, node: NodeProcess, where: Path) -> None:
    """The batch has files and no entry: they count for nothing, and are written again."""
    asyncio.run(publish(node.address, 300, COUNT))
    archive_of(spark, node, where, compact=False)
    newest = max(Archive(str(where)).entries(), key=lambda entry: (bool(entry.query), entry.batch))
    for folder in ("entries", "receipts"):
        for path in (where / OWN / folder).glob(f"{newest.name}.*"):
            path.unlink()
    _last(where / OWN / "checkpoint" / "commits").unlink()
    assert archived(spark, str(where)).count() == COUNT
    archive_of(spark, node, where, compact=False)
    assert messages_in(spark, where) == [message(number) for number in range(COUNT + 300)]


def _checkpoint_lost(spark: SparkSession, node: NodeProcess, where: Path) -> None:
    """A new query goes on where the archive ends."""
    shutil.rmtree(where / OWN / "checkpoint")
    asyncio.run(publish(node.address, 100, COUNT + 300))
    assert archive_of(spark, node, where).messages == 100
    assert messages_in(spark, where) == [message(number) for number in range(COUNT + 400)]


def _last(folder: Path) -> Path:
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    # Hadoop keeps a checksum beside it, which would not let another file have the name.
    (folder / f".{max(numbers)}.crc").unlink(missing_ok=True)
    return folder / str(max(numbers))


EUROPE = "orders/eu/#"


@pytest.fixture(scope="module")
def parquet(
    spark: SparkSession, filled: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A part of the topics, as other formats are to hold it too."""
    where = tmp_path_factory.mktemp("parquet") / "archive"
    archive_of(spark, filled, where, topics=EUROPE)
    return where


def test_times_to_live_are_kept_as_they_were_published(spark: SparkSession, parquet: Path) -> None:
    rows = archived(spark, str(parquet)).collect()
    assert rows
    for row in rows:
        assert row.ttl_s == ttl_s_of(int(bytes(row.value).split(b":")[0]))
    # In the files as ever since: 32 bits, which the table reads without their sign.
    kept = [table_of(parquet, file).column("ttl_s") for file in Archive(str(parquet)).live()]
    assert {column.type for column in kept} == {pa.int32()}
    found = {value for column in kept for value in column.to_pylist()}
    assert found == {0, 3_000_000_000 - (1 << 32)}


@pytest.mark.parametrize("kind", ["orc", "json"])
def test_another_format_holds_the_same(
    spark: SparkSession, filled: NodeProcess, parquet: Path, tmp_path: Path, kind: str
) -> None:
    expected, where = rows_in(spark, parquet), tmp_path / kind
    done = archive_of(spark, filled, where, format=kind, topics=EUROPE, messages_per_batch=700)
    assert done.batches > 1
    assert done.messages == len(expected) > 0
    # To the microsecond, and with every byte of keys and values.
    assert rows_in(spark, where) == expected
    assert archive_of(spark, filled, where, format=kind, topics=EUROPE).messages == 0
    with pytest.raises(ConfigError, match=rf"is {kind} of orders/eu/#, not parquet of #"):
        archive_of(spark, filled, where, topics="#")
    with pytest.raises(ConfigError, match=f"is {kind}: verify reads parquet only"):
        verify(spark, VerifyOptions(str(where), {"address": filled.address}), told_by(filled))


def rows_in(spark: SparkSession, where: Path) -> list[tuple[object, ...]]:
    """All of every message, by stream and offset."""
    rows = archived(spark, str(where)).drop("batch").collect()
    return sorted(
        ((row.node, row.shard, row.generation, row.offset, *map(str, row)) for row in rows),
    )


def test_compaction_does_not_take_over_a_file_that_was_changed(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    archive_of(spark, filled, where, messages_per_batch=900, compact=False)
    by_stream: dict[Stream, list[ArchivedFile]] = {}
    for file in sealed_files(where, filled):
        by_stream.setdefault(file.stream, []).append(file)
    stream = next(stream for stream, files in by_stream.items() if len(files) > 1)
    changed = by_stream.pop(stream)[-1]
    rewrite(where, changed, table_of(where, changed).slice(1))

    done = archive_of(spark, filled, where)
    # The others are merged, and a message is neither lost nor there twice.
    assert done.compacted_into == sum(1 for files in by_stream.values() if len(files) > 1)
    assert changed in Archive(str(where)).live()
    with pytest.raises(
        DriftFound, match=rf"1 streams were not merged.*{changed.path} has .* bytes"
    ):
        check(done)
    report = verify(
        spark, VerifyOptions(str(where), source_of(filled), repair=True), told_by(filled)
    )
    assert (report.is_equal, report.fetched) == (True, 1)
    again = archive_of(spark, filled, where)
    assert (again.refused, again.compacted_into) == ([], 1)
    assert len({file.stream for file in sealed_files(where, filled)}) == len(
        sealed_files(where, filled)
    )


def test_a_corrupt_segment_is_an_error_with_its_name_or_a_gap_with_its_range(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled.data / "streams", copy / "streams")
    seal = told_by(filled).seals[0]
    segment = copy / "streams" / f"{seal.shard:03}" / f"{seal.generation:08}.seg"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    source = {"path": str(copy), "node": "node-1"}
    where = tmp_path / "archive"
    with (
        pytest.raises(JournalDamaged, match=rf"1 messages of {seal.stream.shard}, .*{segment}"),
        explained(),
    ):
        archive(spark, ArchiveOptions(str(where), source), list)
    assert Archive(str(where)).live() == []

    # The same archive goes on with what is left, and says what is not.
    allowed = {**source, "failOnDataLoss": "false"}
    done = archive(spark, ArchiveOptions(str(where), allowed), lambda: ask(source).seals)
    (lost,) = done.lost
    assert (lost.shard, lost.upto - lost.first, done.lost_messages) == (
        str(seal.stream.shard),
        1,
        1,
    )
    assert str(segment) in lost.why
    extents = FolderStreams(str(copy), "node-1").extents()
    total = sum(extent.end - extent.first for extent in extents)
    assert done.messages == total - audit_lines_in(spark, filled) - 1
    report = verify(spark, VerifyOptions(str(where), source), ask(source))
    (differing,) = report.differing
    assert (differing.stream, differing.counts) == (str(seal.stream), {LOST: 1})
    # The node still has it whole: a repair from there brings the message.
    options = VerifyOptions(str(where), {"address": filled.address}, repair=True)
    repaired = verify(spark, options, told_by(filled))
    assert (repaired.is_equal, repaired.fetched) == (True, 1)
