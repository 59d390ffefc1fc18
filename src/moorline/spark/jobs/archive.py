"""Room: spark. `archive`: topics into Parquet, until caught up or continuously; small files made large.

Every micro-batch writes a folder of its own and then its entry in the manifest (archive_files.py). A batch
that Spark asks for again either has its entry, then nothing is done, or writes its folder again from the
beginning: so each message is in the archive once. Where the checkpoint is lost and the archive is not, a
new query goes on where the archive ends.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from moorline.core.stream import Stream
from moorline.core.topic import check_filter
from moorline.errors import ConfigError, DriftFound
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import (
    Archive,
    ArchivedFile,
    Entry,
    Holdings,
    SealedStream,
    folder_of,
    reached,
)
from moorline.spark.jobs.batches import Batch, query_of
from moorline.spark.jobs.failures import spark_errors
from moorline.spark.jobs.watching import Seen, moved, nobody, wait

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = "#,$dead/#"
"""Everything: dead letters are not in `#`, and a stream with them is proven only if they are there."""

TRIGGER = "10 seconds"
"""Time between two batches of a continuous archive: files that are not tiny, and soon enough."""

FILE_BYTES = 256 * 1024 * 1024
"""Size at which compaction begins another file."""


class Archived(msgspec.Struct, frozen=True):
    """What a run did; `lost` names ranges that were gone, where that is allowed."""

    messages: int
    batches: int
    files: int
    compacted_files: int
    compacted_into: int
    seals: int
    lost: list[str] = []


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
    upkeep = _Upkeep(spark, options, target, sealed)
    target.note_seals(sealed())
    wait(_begun(spark, options, target), seen, upkeep.now_and_then, count=moved)
    upkeep.do(seen)
    return Archived(
        sum(file.rows for entry in upkeep.new.values() for file in entry.files),
        len(upkeep.new),
        len(target.live()),
        upkeep.merged_files,
        upkeep.merged_into,
        len(target.seals()),
        [lost for entry in upkeep.new.values() for lost in entry.lost],
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
    """What goes on beside the query: new seals are kept, what they seal is compacted, batches are counted."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ArchiveOptions,
        target: Archive,
        sealed: Callable[[], Iterable[SealedStream]],
    ) -> None:
        self.new: dict[str, Entry] = {}
        self.merged_files = 0
        self.merged_into = 0
        self._spark = spark
        self._options = options
        self._target = target
        self._sealed = sealed
        self._before = {entry.name for entry in target.entries()}
        self._due_s = time.monotonic() + UPKEEP_S

    def now_and_then(self) -> None:
        """In a run that does not end."""
        if self._options.trigger and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + UPKEEP_S
            self._target.note_seals(self._sealed())
            self.do(nobody)

    def do(self, seen: Seen) -> None:
        # Counted first: compaction may remove entries that it has made idle.
        for entry in self._target.entries():
            if entry.query and entry.name not in self._before:
                self.new[entry.name] = entry
        if self._options.compact and self._options.format == "parquet":
            files, into = compact(self._spark, self._target, set(self._target.seals()), seen)
            self.merged_files += files
            self.merged_into += into


UPKEEP_S = 60.0
"""Time between two looks at what was sealed."""


def _begun(spark: "SparkSession", options: ArchiveOptions, target: Archive) -> Any:
    checkpoint = options.checkpoint or _of_spark(target.checkpoint)
    starting = _starting(target, checkpoint)
    reader = (
        spark.readStream.format("moorline")
        .options(**options.source)
        .option("topics", options.topics)
        .option("includeSystem", "true")
        .option("startingOffsets", starting)
    )
    if options.messages_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", str(options.messages_per_batch))
    batch = Batch(options.where, options.format, checkpoint, options.source, starting)
    writer = (
        reader.load()
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", checkpoint)
        .queryName("moor pipeline archive")
    )
    if options.trigger:
        return writer.trigger(processingTime=options.trigger).start()
    return writer.trigger(availableNow=True).start()


def _of_spark(where: str) -> str:
    return where if "://" in where else os.path.abspath(where)


def _starting(target: Archive, checkpoint: str) -> str:
    """For a query without a checkpoint: behind what the archive has, shard by shard."""
    ends = reached(target.entries()) if query_of(checkpoint) is None else {}
    return msgspec.json.encode(ends).decode() if ends else "earliest"


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
