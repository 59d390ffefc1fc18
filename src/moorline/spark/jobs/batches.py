"""Room: spark. One micro-batch of an archive: its files, then its entry.

Spark's query keeps the place, the trigger and the checkpoint. The messages of a Parquet archive do not go
through it: a batch is a range of offsets, which Spark has written down before it begins, and tasks read
their part of it from the nodes and write it with pyarrow. Only archives of other formats take the way
through the JVM.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from moorline.core.stream import Stream
from moorline.errors import ConnectionLost, DriftFound, MessagesGone
from moorline.limits import ARCHIVE_TASK_MESSAGES
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_entries import BATCH_FOLDER
from moorline.spark.jobs.archive_files import (
    COLUMNS,
    MESSAGE_SCHEMA,
    PARTITIONS,
    STREAM_SCHEMA,
    Archive,
    folder_of,
    text_options,
)
from moorline.spark.jobs.archive_location import ArchiveLocation
from moorline.spark.jobs.manifest import ArchivedFile, ArchiveGap, Entry
from moorline.spark.jobs.ttl_bits import SQL_TO_BITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from moorline.spark.planning import Range

Offsets = dict[str, int]


class Batch:
    """Writes a batch. Plain values only: with Spark Connect it is pickled to the server."""

    def __init__(
        self, where: str, kind: str, checkpoint: str, source: dict[str, str], starting: str
    ) -> None:
        self._where = where
        self._kind = kind
        self._checkpoint = checkpoint
        self._source = source
        self._starting = starting

    def __call__(self, frame: "DataFrame", number: int) -> None:
        target = Archive(self._where)
        query = (query_of(self._checkpoint) or "").partition("-")[0]
        name = f"{query}-{number:06}"
        if target.has_entry(name):
            return
        ends = _logged(self._checkpoint, number)
        items, lost = self._planned(target, name, number, ends)
        # What an attempt before this one left has no entry: nobody counts it.
        target.remove_folder(f"{BATCH_FOLDER}{name}")
        if self._kind == "parquet":
            files, unread = _written(frame.sparkSession, target, name, items)
            lost += unread
        else:
            files = _written_by_spark(frame, target, self._kind, name)
        target.add(Entry(name, files, query=query, batch=number, reached=ends, lost=lost))

    def _planned(
        self, target: Archive, name: str, number: int, ends: Offsets
    ) -> tuple[list["ArchiveRange"], list[ArchiveGap]]:
        """The ranges of streams between the batch before and this one, with their nodes; and what is gone."""
        from moorline.spark.jobs.node_side import opened_streams
        from moorline.spark.planning import firsts, ranges
        from moorline.spark.streams import described

        streams = opened_streams(self._source)
        try:
            start = (
                _logged(self._checkpoint, number - 1)
                if number
                else self._first(firsts(described(streams, {}).bounds))
            )
            shard_extents = described(streams, start).shard_extents
            away = set(streams.silent())
            for shard, end in ends.items():
                if end > start.get(shard, end) and shard.rpartition("/")[0] in away:
                    raise ConnectionLost(f"the node of {shard} does not answer: start it")
            found, gaps = ranges(start, ends, shard_extents)
            lost = [
                ArchiveGap(one.shard, one.first, one.upto, "retention took them") for one in gaps
            ]
            if lost and not self._allows_loss:
                raise MessagesGone(
                    f"gone before they were archived: {'; '.join(map(str, lost))}: --allow-loss goes on"
                )
            topics = target.holdings().topics
            items = [
                ArchiveRange(
                    self._where,
                    name,
                    self._source,
                    list(streams.addresses(part.stream.home)),
                    part.stream,
                    part.first,
                    part.upto,
                    topics,
                    self._allows_loss,
                )
                for one in found
                for part in _parts(one)
            ]
            return items, lost
        finally:
            streams.close()

    def _first(self, known: Offsets) -> Offsets:
        """Where a query without a batch begins: what is there, or what was reached before."""
        given = {} if self._starting == "earliest" else msgspec.json.decode(self._starting)
        return {**known, **given}

    @property
    def _allows_loss(self) -> bool:
        return self._source.get("failOnDataLoss") == "false"


class ArchiveRange(msgspec.Struct, frozen=True):
    """Messages `first` to before `upto` of a stream, for one task."""

    where: str
    batch: str
    source: dict[str, str]
    addresses: list[str]
    stream: Stream
    first: int
    upto: int
    topics: list[str]
    allows_loss: bool


class Part(msgspec.Struct, frozen=True):
    """The files that a task wrote, and what it could not read."""

    files: list[ArchivedFile]
    lost: list[ArchiveGap]


def _written(
    spark: "SparkSession", target: Archive, name: str, items: list[ArchiveRange]
) -> tuple[list[ArchivedFile], list[ArchiveGap]]:
    parts = tasks.run(spark, archive_range, items, Part)
    files = [file for part in parts for file in part.files]
    # A worker that was killed left what it had; the attempt behind it wrote other files.
    known = {file.path for file in files}
    for path, _ in list(target.data_files(f"{BATCH_FOLDER}{name}")):
        if path not in known:
            target.remove(path)
    return files, [one for part in parts for one in part.lost]


def archive_range(item: bytes) -> Iterator[Part]:
    """In a worker. Its files have names that nobody else draws: a second attempt is in nobody's way."""
    from moorline.spark.jobs.node_side import NodeGap, node_rows
    from moorline.spark.jobs.parquet import part_writer

    wanted = msgspec.json.decode(item, type=ArchiveRange)
    lost: list[ArchiveGap] = []
    rows = node_rows(
        wanted.source, wanted.addresses, wanted.stream, wanted.first, wanted.upto, wanted.topics
    )
    with part_writer(Archive(wanted.where), folder_of(wanted.batch, wanted.stream)) as writer:
        for found in rows:
            if not isinstance(found, NodeGap):
                writer.write(found)
                continue
            gone = ArchiveGap(str(wanted.stream.shard), found.first, found.upto, found.text)
            if not wanted.allows_loss:
                raise MessagesGone(f"{gone}: --allow-loss goes past them")
            lost.append(gone)
    yield Part(writer.files, lost)


def _parts(one: "Range") -> Iterator["Range"]:
    for first in range(one.first, one.upto, ARCHIVE_TASK_MESSAGES):
        yield one._replace(first=first, upto=min(first + ARCHIVE_TASK_MESSAGES, one.upto))


# --- by Spark ---------------------------------------------------------------------------------------


def _written_by_spark(
    frame: "DataFrame", target: Archive, kind: str, name: str
) -> list[ArchivedFile]:
    """Any format that the session has. One entry for each stream: its folder, in place of files."""
    from pyspark.sql import functions

    folder = target.uri(f"{BATCH_FOLDER}{name}")
    options = text_options(kind)
    (
        frame.withColumn("ttl_s", functions.expr(SQL_TO_BITS))
        .selectExpr(*COLUMNS, *STREAM_COLUMNS)
        .write.format(kind)
        .options(**options)
        .mode("overwrite")
        .partitionBy(*PARTITIONS)
        .save(folder)
    )
    rows = (
        frame.sparkSession.read.format(kind)
        .schema(f"{MESSAGE_SCHEMA}, {STREAM_SCHEMA}")
        .options(**options)
        .load(folder)
        .groupBy(*PARTITIONS)
        .agg(
            functions.count("*").alias("count"),
            functions.min("offset").alias("first"),
            functions.max("offset").alias("last"),
        )
        .collect()
    )
    found = []
    for row in rows:
        stream = Stream(str(row.node), row.shard, row.generation)
        path = folder_of(name, stream)
        found.append(ArchivedFile(path, row["count"], 0, *stream, row.first, row.last))
    return found


STREAM_COLUMNS = (
    "substring_index(stream, '/', 1) as node",
    "cast(substring_index(substring_index(stream, '/', 2), '/', -1) as int) as shard",
    "cast(substring_index(stream, '/', -1) as int) as generation",
)
"""`stream` is node/shard/generation, and a node's name has no slash."""


# --- what Spark has written down --------------------------------------------------------------------


_GOES_ON = "and the next run goes on where the archive ends"


def query_of(checkpoint: str) -> str | None:
    """The id that Spark gave the query when it made the checkpoint."""
    found = ArchiveLocation(checkpoint).read("metadata")
    if found is None:
        return None
    try:
        return str(msgspec.json.decode(found)["id"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise DriftFound(
            f"{checkpoint} is not a checkpoint of Spark's ({error}): remove it, {_GOES_ON}"
        ) from error


def _logged(checkpoint: str, number: int) -> Offsets:
    """How far a batch goes: Spark writes it down before the batch begins."""
    location, path = ArchiveLocation(checkpoint), f"offsets/{number}"
    logged = location.read(path)
    if logged is None:
        raise DriftFound(
            f"{location.uri(path)} is gone, where Spark had written how far a batch goes: remove the "
            f"checkpoint, {_GOES_ON}"
        )
    try:
        return dict(msgspec.json.decode(logged.splitlines()[-1], type=dict[str, int]))
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise DriftFound(
            f"{location.uri(path)} is not what Spark wrote there ({error}): remove the checkpoint, {_GOES_ON}"
        ) from error
