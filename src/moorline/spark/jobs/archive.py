"""Room: spark. `archive`: topics into Parquet, until caught up or continuously; small files made large.

Every micro-batch writes a folder of its own and then its entry in the manifest (archive_files.py). A batch
that Spark asks for again either has its entry, then nothing is done, or writes its folder again from the
beginning: so each message is in the archive once. Where the checkpoint is lost and the archive is not, a
new query goes on where the archive ends.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from moorline.core.stream import Stream
from moorline.core.topic import check_filter
from moorline.errors import ConfigError, DriftFound
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import (
    COLUMNS,
    PARTITIONS,
    Archive,
    ArchivedFile,
    Entry,
    Holdings,
    SealedStream,
    folder_of,
    reached,
)
from moorline.spark.jobs.failures import spark_errors
from moorline.spark.jobs.watching import Seen, nobody, wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = "#,$dead/#"
"""Everything: dead letters are not in `#`, and a stream with them is proven only if they are there."""

TRIGGER = "10 seconds"
"""Time between two batches of a continuous archive: files that are not tiny, and soon enough."""

FILE_BYTES = 256 * 1024 * 1024
"""Size at which compaction begins another file."""

WRITERS = 64
"""Streams that a task writes at once without sorting by stream: it reads one, mostly."""


class Archived(msgspec.Struct, frozen=True):
    """What a run did."""

    messages: int
    batches: int
    files: int
    compacted_files: int
    compacted_into: int
    seals: int


class ArchiveOptions(msgspec.Struct, frozen=True):
    """Where from (options of the data source), where to, and how."""

    where: str
    source: dict[str, str]
    topics: str = TOPICS
    format: str = "parquet"
    checkpoint: str = ""
    trigger: str = ""
    compact: bool = True
    messages_per_batch: int = 0


def archive(
    spark: "SparkSession",
    options: ArchiveOptions,
    sealed: Callable[[], Iterable[SealedStream]],
    seen: Seen = nobody,
) -> Archived:
    """Runs until all that is stored now is archived; with a `trigger`, until somebody stops the query.

    `sealed` asks the nodes for their sealed streams. Their digests are kept in the archive, so that it can
    be verified when retention has taken the streams.
    """
    target = opened(options)
    before = {entry.name for entry in target.entries()}
    told = {seal.stream: seal for seal in sealed()}
    target.note_seals(told.values())
    messages = wait(_begun(spark, options, target), seen, _Upkeep(spark, options, target, sealed))
    merged_files, merged_into = 0, 0
    if options.compact and options.format == "parquet":
        merged_files, merged_into = compact(spark, target, set(target.seals()), seen)
    new = [entry for entry in target.entries() if entry.name not in before and entry.query]
    return Archived(
        messages,
        len(new),
        len(target.live()),
        merged_files,
        merged_into,
        len(target.seals()),
    )


def opened(options: ArchiveOptions) -> Archive:
    """The archive, made if there is none; refused if it is of something else, or filters are none."""
    topics = [part.strip() for part in options.topics.split(",")]
    for text in topics:
        check_filter(text)
    target = Archive(options.where)
    target.open(Holdings(options.format, topics))
    return target


class _Upkeep:
    """In a run that does not end: keeps new seals, and compacts what they seal, once in a while."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ArchiveOptions,
        target: Archive,
        sealed: Callable[[], Iterable[SealedStream]],
    ) -> None:
        self._spark = spark
        self._options = options
        self._target = target
        self._sealed = sealed
        self._due_s = _now_s() + UPKEEP_S

    def __call__(self) -> None:
        if not self._options.trigger or _now_s() < self._due_s:
            return
        self._due_s = _now_s() + UPKEEP_S
        self._target.note_seals(self._sealed())
        if self._options.compact and self._options.format == "parquet":
            compact(self._spark, self._target, set(self._target.seals()))


UPKEEP_S = 60.0
"""Time between two looks at what was sealed."""


def _now_s() -> float:
    import time

    return time.monotonic()


def _begun(spark: "SparkSession", options: ArchiveOptions, target: Archive) -> Any:
    checkpoint = options.checkpoint or _of_spark(target.checkpoint)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(WRITERS))
    reader = (
        spark.readStream.format("moorline")
        .options(**options.source)
        .option("topics", options.topics)
        .option("includeSystem", "true")
        .option("startingOffsets", _starting(target, checkpoint))
    )
    if options.messages_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", str(options.messages_per_batch))
    writer = (
        reader.load()
        .selectExpr(*COLUMNS, *_stream_columns())
        .writeStream.foreachBatch(_Batch(options.where, options.format, checkpoint))
        .option("checkpointLocation", checkpoint)
        .queryName("moor pipeline archive")
    )
    if options.trigger:
        return writer.trigger(processingTime=options.trigger).start()
    return writer.trigger(availableNow=True).start()


def _of_spark(where: str) -> str:
    return where if "://" in where else os.path.abspath(where)


def _stream_columns() -> list[str]:
    """`stream` is node/shard/generation, and a node's name has no slash."""
    return [
        "substring_index(stream, '/', 1) as node",
        "cast(substring_index(substring_index(stream, '/', 2), '/', -1) as int) as shard",
        "cast(substring_index(stream, '/', -1) as int) as generation",
    ]


def _starting(target: Archive, checkpoint: str) -> str:
    """For a query without a checkpoint: behind what the archive has, shard by shard."""
    ends = reached(target.entries()) if _query_of(checkpoint) is None else {}
    return msgspec.json.encode(ends).decode() if ends else "earliest"


def _query_of(checkpoint: str) -> str | None:
    """The id that Spark gave the query when it made the checkpoint."""
    place = Archive(checkpoint)
    try:
        with place.files.open_input_stream(place.full("metadata")) as source:
            return str(msgspec.json.decode(source.read())["id"])
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise DriftFound(f"{checkpoint} is not a checkpoint of Spark's: {error}") from error


class _Batch:
    """Writes one micro-batch. Plain values only: with Spark Connect it is pickled to the server."""

    def __init__(self, where: str, kind: str, checkpoint: str) -> None:
        self._where = where
        self._kind = kind
        self._checkpoint = checkpoint

    def __call__(self, frame: "DataFrame", number: int) -> None:
        target = Archive(self._where)
        query = (_query_of(self._checkpoint) or "").partition("-")[0]
        name = f"{query}-{number:06}"
        if target.has_entry(name):
            return
        folder = f"batch={name}"
        (
            frame.write.format(self._kind)
            .mode("overwrite")
            .option("compression", "zstd")
            .partitionBy(*PARTITIONS)
            .save(target.uri(folder))
        )
        files = (
            target.files_in(folder)
            if self._kind == "parquet"
            else _described(frame.sparkSession, target, self._kind, folder)
        )
        ends = _ends_of(self._checkpoint, number)
        target.add(Entry(name, files, query=query, batch=number, reached=ends))


def _ends_of(checkpoint: str, number: int) -> dict[str, int]:
    """How far a batch goes: Spark has written it down before it began."""
    place = Archive(checkpoint)
    with place.files.open_input_stream(place.full(f"offsets/{number}")) as source:
        lines = bytes(source.read()).decode().splitlines()
    return dict(msgspec.json.decode(lines[-1], type=dict[str, int]))


def _described(
    spark: "SparkSession", target: Archive, kind: str, folder: str
) -> list[ArchivedFile]:
    """Of a format whose footers we do not read: one for each stream, its folder in place of files."""
    from pyspark.sql import functions

    rows = (
        spark.read.format(kind)
        .load(target.uri(folder))
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
        path = folder_of(folder.removeprefix("batch="), stream)
        found.append(ArchivedFile(path, row["count"], 0, *stream, row.first, row.last))
    return found


# --- compaction -------------------------------------------------------------------------------------


class Merge(msgspec.Struct, frozen=True):
    """Files of a stream that become few, under a folder of that name."""

    where: str
    batch: str
    stream: Stream
    files: list[ArchivedFile]


def compact(
    spark: "SparkSession", target: Archive, sealed: set[Stream], seen: Seen = nobody
) -> tuple[int, int]:
    """Each sealed stream that is in several files goes into as few as its size allows.

    Only what is sealed: it grows no more, so it is moved once. The new files are written aside, the entry
    makes them count in place of the old ones, and these are removed last. How many files became how many.
    """
    by_stream: dict[Stream, list[ArchivedFile]] = {}
    for file in target.live():
        if file.stream in sealed:
            by_stream.setdefault(file.stream, []).append(file)
    name = f"compacted-{uuid.uuid4().hex[:12]}"
    merges = [
        Merge(target.where, name, stream, files)
        for stream, files in by_stream.items()
        if len(files) > _files_needed(files)
    ]
    came = tasks.run(spark, merge_files, merges, ArchivedFile, seen)
    if came:
        old = [file.path for merge in merges for file in merge.files]
        target.add(Entry(name, came, replaced=old))
        target.clean()
        return len(old), len(came)
    target.clean()
    return 0, 0


def _files_needed(files: list[ArchivedFile]) -> int:
    return 1 + sum(file.size_bytes for file in files) // FILE_BYTES


def merge_files(item: bytes) -> Iterator[ArchivedFile]:
    """In a worker: by the order of offsets, row group by row group."""
    from moorline.spark.jobs.digests import batches_of
    from moorline.spark.jobs.parquet import PartWriter

    merge = msgspec.json.decode(item, type=Merge)
    target = Archive(merge.where)
    stream = merge.stream
    with PartWriter(target, folder_of(merge.batch, stream)) as writer:
        for file in sorted(merge.files, key=lambda file: file.first):
            rows = 0
            for batch in batches_of(target, file.path):
                writer.write(batch)
                rows += batch.num_rows
            if rows != file.rows:
                raise DriftFound(
                    f"{target.uri(file.path)} has {rows} messages, not the {file.rows} that were "
                    "written: `moor pipeline verify --repair` puts it right"
                )
    yield from writer.files


def check_format(spark: "SparkSession", kind: str) -> None:
    """Refuses a format that the session cannot write, before anything is read."""
    try:
        spark.read.format(kind).schema("offset long").load([])
    except spark_errors() as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise ConfigError(
                f"--format: this Spark session has no format {kind!r}; parquet is always there"
            ) from error
