"""`archive` on a real Spark: every message once, whatever happens between two runs."""

import asyncio
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.process.nodes import NodeProcess
from tests.spark.archives import (
    archive_of,
    filled,
    messages_in,
    rewrite,
    sealed_files,
    table_of,
    told_by,
)
from tests.spark.publishing import COUNT, message, publish

from moorline.errors import BadTopic, ConfigError, DriftFound, JournalDamaged
from moorline.spark.folder_link import FolderStreams
from moorline.spark.jobs.archive import (
    ArchiveOptions,
    Merge,
    archive,
    check_format,
    compact,
    merge_files,
)
from moorline.spark.jobs.archive_files import OWN, Archive, archived
from moorline.spark.jobs.compare import LOST
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.node_side import ask
from moorline.spark.jobs.verify import VerifyOptions, verify

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

__all__ = ["filled"]


def test_every_message_is_archived_once_run_after_run(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    expected = [message(number) for number in range(COUNT)]
    first = archive_of(spark, filled, where, messages_per_batch=900, compact=False)
    assert (first.messages, first.batches) == (COUNT, 3)
    assert messages_in(spark, where) == expected
    sealed = {seal.stream for seal in told_by(filled).seals}
    assert set(Archive(str(where)).seals()) == sealed

    # Again: nothing is new, and what lies in many files is merged.
    many = len(sealed_files(where, filled))
    again = archive_of(spark, filled, where)
    assert (again.messages, again.batches) == (0, 0)
    assert again.compacted_files > again.compacted_into > 0
    streams = [file.stream for file in sealed_files(where, filled)]
    assert len(streams) == len(set(streams)) < many
    assert messages_in(spark, where) == expected
    assert compact(spark, Archive(str(where)), sealed) == (0, 0)

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
    (where / OWN / "entries" / f"{newest.name}.json").unlink()
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


def test_another_format_and_what_is_refused(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    where = tmp_path / "orc"
    done = archive_of(spark, filled, where, format="orc", topics="orders/eu/#")
    assert done.messages == archived(spark, str(where)).count() > 0
    with pytest.raises(ConfigError, match=r"is orc of orders/eu/#, not parquet of #"):
        archive_of(spark, filled, where, topics="#")
    with pytest.raises(ConfigError, match="has no format 'nonsense'"):
        check_format(spark, "nonsense")
    check_format(spark, "orc")
    with pytest.raises(BadTopic, match="# stands alone"):
        archive_of(spark, filled, tmp_path / "other", topics="#/x")


def test_compaction_does_not_take_over_a_file_that_was_changed(
    spark: SparkSession, filled: NodeProcess, tmp_path: Path
) -> None:
    import msgspec

    where = tmp_path / "archive"
    archive_of(spark, filled, where)
    file = sealed_files(where, filled)[0]
    rewrite(where, file, table_of(where, file).slice(1))
    item = msgspec.json.encode(Merge(str(where), "compacted-x", file.stream, [file]))
    with pytest.raises(DriftFound, match=rf"{file.path} has {file.rows - 1} messages, not"):
        list(merge_files(item))
    assert file in Archive(str(where)).live()


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
        pytest.raises(JournalDamaged, match=rf"1 messages of {seal.stream}.*{segment}"),
        explained(),
    ):
        archive(spark, ArchiveOptions(str(where), source), list)
    assert Archive(str(where)).live() == []

    # The same archive goes on with what is left, and says what is not.
    allowed = {**source, "failOnDataLoss": "false"}
    done = archive(spark, ArchiveOptions(str(where), allowed), lambda: ask(source).seals)
    (lost,) = done.lost
    assert lost.startswith(f"1 messages of {seal.stream}, ")
    extents = FolderStreams(str(copy), "node-1").extents()
    total = sum(extent.end - extent.first for extent in extents)
    assert done.messages == total - 1
    report = verify(spark, VerifyOptions(str(where), source), ask(source))
    (differing,) = report.differing
    assert (differing.stream, differing.counts) == (str(seal.stream), {LOST: 1})
    # The node still has it whole: a repair from there brings the message.
    options = VerifyOptions(str(where), {"address": filled.address}, repair=True)
    repaired = verify(spark, options, told_by(filled))
    assert (repaired.is_equal, repaired.fetched) == (True, 1)
