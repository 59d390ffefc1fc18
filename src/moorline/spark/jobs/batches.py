"""Room: spark. One micro-batch of an archive: its files, then its entry.

Spark's query keeps the place, the trigger and the checkpoint. The messages of a Parquet archive do not go
through it: a batch is a range of offsets, which Spark has written down before it begins, and tasks read
their part of it from the nodes and write it with pyarrow. Only archives of other formats take the way
through the JVM.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from moorline.core.stream import Stream
from moorline.errors import ConnectionLost, DriftFound
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import (
    COLUMNS,
    PARTITIONS,
    Archive,
    ArchivedFile,
    Entry,
    folder_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from moorline.spark.places import Range

TASK_MESSAGES = 500_000
"""Messages that one task archives, about a second of work; a file at least."""

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
        if self._kind == "parquet":
            files, lost = self._written(frame.sparkSession, target, name, number, ends)
        else:
            files, lost = _written_by_spark(frame, target, self._kind, name), []
        target.add(Entry(name, files, query=query, batch=number, reached=ends, lost=lost))

    def _written(
        self, spark: "SparkSession", target: Archive, name: str, number: int, ends: Offsets
    ) -> tuple[list[ArchivedFile], list[str]]:
        # What an attempt before this one left has no entry: nobody counts it.
        with contextlib.suppress(FileNotFoundError):
            target.files.delete_dir(target.full(f"batch={name}"))
        items, lost = self._planned(target, name, number, ends)
        parts = tasks.run(spark, archive_range, items, Part)
        lost += [text for part in parts for text in part.lost]
        return [file for part in parts for file in part.files], lost

    def _planned(
        self, target: Archive, name: str, number: int, ends: Offsets
    ) -> tuple[list["ArchiveRange"], list[str]]:
        """The ranges of streams between the batch before and this one, with their nodes."""
        from moorline.spark.jobs.node_side import opened_streams
        from moorline.spark.places import MessagesGone, firsts, lines_of, ranges

        streams = opened_streams(self._source)
        try:
            lines = lines_of(streams.extents())
            start = _logged(self._checkpoint, number - 1) if number else self._first(firsts(lines))
            away = set(streams.silent())
            for shard, end in ends.items():
                if end > start.get(shard, end) and shard.rpartition("/")[0] in away:
                    raise ConnectionLost(f"the node of {shard} does not answer: start it")
            found, missing = ranges(start, ends, lines)
            texts = [f"{one}: retention took them" for one in missing]
            if texts and not self._allows_loss:
                raise MessagesGone(
                    f"gone before they were archived: {'; '.join(texts)}: --allow-loss goes on"
                )
            topics = target.holdings().topics
            items = [
                ArchiveRange(
                    self._where,
                    name,
                    self._source,
                    list(streams.addresses(part.stream.node)),
                    part.stream,
                    part.first,
                    part.upto,
                    topics,
                    self._allows_loss,
                )
                for one in found
                for part in _parts(one)
            ]
            return items, texts
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
    lost: list[str]


def archive_range(item: bytes) -> Iterator[Part]:
    """In a worker. Its files have names that nobody else draws: a second attempt is in nobody's way."""
    from moorline.spark.jobs.node_side import Lost, node_rows
    from moorline.spark.jobs.parquet import PartWriter
    from moorline.spark.places import MessagesGone

    wanted = msgspec.json.decode(item, type=ArchiveRange)
    lost: list[str] = []
    rows = node_rows(
        wanted.source, wanted.addresses, wanted.stream, wanted.first, wanted.upto, wanted.topics
    )
    with PartWriter(Archive(wanted.where), folder_of(wanted.batch, wanted.stream)) as writer:
        for found in rows:
            if not isinstance(found, Lost):
                writer.write(found)
                continue
            text = (
                f"{found.upto - found.first} messages of {wanted.stream}, {found.first} to "
                f"{found.upto - 1}: {found.text}"
            )
            if not wanted.allows_loss:
                raise MessagesGone(f"{text}: --allow-loss goes past them")
            lost.append(text)
    yield Part(writer.files, lost)


def _parts(one: "Range") -> Iterator["Range"]:
    for first in range(one.first, one.upto, TASK_MESSAGES):
        yield one._replace(first=first, upto=min(first + TASK_MESSAGES, one.upto))


# --- by Spark ---------------------------------------------------------------------------------------


def _written_by_spark(
    frame: "DataFrame", target: Archive, kind: str, name: str
) -> list[ArchivedFile]:
    """Any format that the session has. One entry for each stream: its folder, in place of files."""
    from pyspark.sql import functions

    folder = target.uri(f"batch={name}")
    (
        frame.selectExpr(*COLUMNS, *STREAM_COLUMNS)
        .write.format(kind)
        .mode("overwrite")
        .partitionBy(*PARTITIONS)
        .save(folder)
    )
    rows = (
        frame.sparkSession.read.format(kind)
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


def query_of(checkpoint: str) -> str | None:
    """The id that Spark gave the query when it made the checkpoint."""
    place = Archive(checkpoint)
    try:
        with place.files.open_input_stream(place.full("metadata")) as source:
            return str(msgspec.json.decode(source.read())["id"])
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise DriftFound(f"{checkpoint} is not a checkpoint of Spark's: {error}") from error


def _logged(checkpoint: str, number: int) -> Offsets:
    """How far a batch goes: Spark writes it down before the batch begins."""
    place = Archive(checkpoint)
    path = place.full(f"offsets/{number}")
    try:
        with place.files.open_input_stream(path) as source:
            lines = bytes(source.read()).decode().splitlines()
        return dict(msgspec.json.decode(lines[-1], type=dict[str, int]))
    except (OSError, msgspec.DecodeError, IndexError, UnicodeDecodeError) as error:
        raise DriftFound(f"{path} is not what Spark wrote there: {error}") from error
