"""Room: spark. `archive`: topics into Parquet, until caught up or continuously; small files made large.

Every micro-batch writes a folder of its own and then its entry in the manifest (archive_files.py). A batch
that Spark asks for again either has its entry, then nothing is done, or writes its folder again from the
beginning: so each message is in the archive once. Where the checkpoint is lost and the archive is not, a
new query goes on where the archive ends.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from moorline.core.topic import check_filter
from moorline.errors import (
    CallFailed,
    ConfigError,
    ConnectionLost,
    DriftFound,
    MessagesGone,
    Untrusted,
)
from moorline.limits import ARCHIVE_BATCH_MESSAGES, ARCHIVE_UPKEEP_MS
from moorline.spark.jobs.archive_files import MESSAGE_SCHEMA, Archive, Holdings, SealedStream
from moorline.spark.jobs.archive_location import OWN, ArchiveLocation
from moorline.spark.jobs.archive_nodes import know_nodes
from moorline.spark.jobs.batches import Batch, query_of
from moorline.spark.jobs.compaction import compact
from moorline.spark.jobs.failures import JavaGone, explained, spark_errors
from moorline.spark.jobs.manifest import ArchiveGap, Entry, reached
from moorline.spark.jobs.node_side import node_ids, opened_streams
from moorline.spark.jobs.patience import Patience, Told, now_ms, silent, wait_for_nodes
from moorline.spark.jobs.watching import Seen, Stopping, moved, never, nobody, share_of, wait
from moorline.spark.planning import ends, firsts
from moorline.spark.streams import described
from moorline.spark.topic_reader import REMEDY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("moorline.spark")

TOPICS = "#,$dead/#"
"""Everything: dead letters are not in `#`, and a stream with them is proven only if they are there."""

WITHOUT_BYTES = ("csv", "text")
"""Formats of Spark's that have no column of bytes."""


class Archived(msgspec.Struct, frozen=True):
    """What a run did.

    `lost` are ranges that were gone, where that is allowed; `refused` names files that compaction left as
    they are, because somebody changed them.
    """

    messages: int
    batches: int
    files: int
    compacted_files: int
    compacted_into: int
    seals: int
    lost: list[ArchiveGap] = []
    refused: list[str] = []

    @property
    def lost_messages(self) -> int:
        return sum(one.upto - one.first for one in self.lost)


class ArchiveOptions(msgspec.Struct, frozen=True):
    """Where from (options of the data source), where to, and how."""

    where: str
    source: dict[str, str]
    topics: str = TOPICS
    format: str = "parquet"
    checkpoint: str = ""
    trigger: str = ""
    compact: bool = True
    messages_per_batch: int = ARCHIVE_BATCH_MESSAGES


def archive(
    spark: "SparkSession",
    options: ArchiveOptions,
    sealed: Callable[[], Iterable[SealedStream]],
    seen: Seen = nobody,
    stopping: Stopping = never,
    told: Told = silent,
) -> Archived:
    """Runs until all that is stored now is archived; with a `trigger`, until `stopping` or an interrupt.

    `sealed` asks the nodes for their sealed streams. Their digests are kept in the archive, so that it can
    be verified when retention has taken the streams. With a `trigger`, a node that is away is waited for, and
    `told` hears of it.
    """
    target = opened(options)
    busy = f"another run of `moor pipeline archive` works on {target.where}: there can be one"
    with target.alone(f"{OWN}/lock", busy):
        target.complete_receipts()
        know_nodes(target, node_ids(options.source))
        upkeep = _Upkeep(spark, options, target, sealed)
        target.note_seals(sealed())
        return _archived(upkeep, _Following(spark, options, target, seen, stopping, told))


def _archived(upkeep: "_Upkeep", following: "_Following") -> Archived:
    target = following.target
    try:
        following.run(upkeep.now_and_then)
    except KeyboardInterrupt:
        # Who interrupts a run without an end wants its end, and what it did.
        if not following.options.trigger:
            raise
    except JavaGone:
        # Who ends all processes at once ends Java too. What is in the manifest is archived.
        if not following.stopping():
            raise
    else:
        if not following.stopping():
            upkeep.compact(following.seen)
    upkeep.count()
    entries = upkeep.new.values()
    return Archived(
        sum(file.rows for entry in entries for file in entry.files),
        len(entries),
        len(target.live()),
        upkeep.merged_files,
        upkeep.merged_into,
        len(target.seals()),
        [lost for entry in entries for lost in entry.lost],
        upkeep.refused,
    )


class _Following:
    """The query, from its beginning to its end; begun again where its node was away, if it has no end."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ArchiveOptions,
        target: Archive,
        seen: Seen,
        stopping: Stopping,
        told: Told,
    ) -> None:
        self.options = options
        self.target = target
        self.seen = seen
        self.stopping = stopping
        self._spark = spark
        self._told = told
        self._stored = _waiting(options, target)
        self._done = 0
        """Messages of the queries before this one, for the bar."""

    def run(self, also: Callable[[], None]) -> None:
        patience = Patience(now_ms())
        while True:
            try:
                with _remedied():
                    self._follow(also)
                return
            except ConnectionLost as error:
                if not self.options.trigger:
                    raise
                wait_for_nodes([self.options.source], error, patience, self._told, self.stopping)
                if self.stopping():
                    return

    def _follow(self, also: Callable[[], None]) -> None:
        query = _begun(self._spark, self.options, self.target)
        before, shown = self._done, [self._done]

        def ahead(done: int, behind: int) -> tuple[int, int]:
            left = behind or max(0, self._stored - before - done)
            batch = min(left, self.options.messages_per_batch)
            return int(batch * share_of(self._spark, str(query.runId))), left

        def seen(done: int, total: int) -> None:
            shown.append(before + done)
            self.seen(before + done, before + total)

        try:
            wait(query, seen, also, count=moved, stopping=self.stopping, ahead=ahead)
        finally:
            self._done = shown[-1]


@contextlib.contextmanager
def _remedied() -> Iterator[None]:
    """What a reader finds gone is told with the remedy of this job, and not with an option of Spark's."""
    try:
        with explained():
            yield
    except (ConnectionLost, MessagesGone) as error:
        raise type(error)(str(error).replace(REMEDY, "--allow-loss goes on")) from error


def check(done: Archived) -> None:
    """Raises if there are files that were changed; what was to be archived is archived."""
    if done.refused:
        raise DriftFound(
            f"{len(done.refused)} streams were not merged, a file of theirs was changed: {done.refused[0]}"
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
        self.refused: list[str] = []
        self._spark = spark
        self._options = options
        self._target = target
        self._sealed = sealed
        self._before = {entry.name for entry in target.entries()}
        self._due_ms = now_ms() + ARCHIVE_UPKEEP_MS

    def now_and_then(self) -> None:
        """In a run that does not end. A node that is away is asked again the next time."""
        if self._options.trigger and now_ms() >= self._due_ms:
            self._due_ms = now_ms() + ARCHIVE_UPKEEP_MS
            self._note_seals()
            self.compact(nobody)

    def _note_seals(self) -> None:
        try:
            self._target.note_seals(self._sealed())
        except Untrusted:
            raise
        except (ConnectionLost, CallFailed) as error:
            log.info("the seals of streams are asked for the next time: %s", error)

    def count(self) -> None:
        for entry in self._target.entries():
            if entry.query and entry.name not in self._before:
                self.new[entry.name] = entry

    def compact(self, seen: Seen) -> None:
        # Counted first: compaction may remove entries that it has made idle.
        self.count()
        if self._options.compact and self._options.format == "parquet":
            done = compact(self._spark, self._target, set(self._target.seals()), seen)
            self.merged_files += done.files
            self.merged_into += done.into
            self.refused = done.refused


def _begun(spark: "SparkSession", options: ArchiveOptions, target: Archive) -> Any:
    checkpoint = ArchiveLocation(options.checkpoint or target.checkpoint).of_spark
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
    batch = Batch(target.where, options.format, checkpoint, options.source, starting)
    writer = (
        reader.load()
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", checkpoint)
        .queryName("moor pipeline archive")
    )
    if options.trigger:
        return writer.trigger(processingTime=options.trigger).start()
    return writer.trigger(availableNow=True).start()


def _waiting(options: ArchiveOptions, target: Archive) -> int:
    """Messages that are stored and not archived yet, for the bar."""
    streams = opened_streams(options.source)
    try:
        bounds = described(streams, {}).bounds
    finally:
        streams.close()
    start = firsts(bounds) | reached(target.entries())
    return sum(max(0, end - start.get(shard, end)) for shard, end in ends(bounds).items())


def _starting(target: Archive, checkpoint: str) -> str:
    """For a query without a checkpoint: behind what the archive has, shard by shard."""
    ends = reached(target.entries()) if query_of(checkpoint) is None else {}
    return msgspec.json.encode(ends).decode() if ends else "earliest"


def check_format(spark: "SparkSession", kind: str) -> None:
    """Refuses a format that the session cannot write, before anything is read."""
    if kind in WITHOUT_BYTES:
        raise ConfigError(
            f"--format: {kind} cannot hold keys and values, which are bytes; parquet can"
        )
    try:
        spark.read.format(kind).schema(MESSAGE_SCHEMA).load([])
    except spark_errors() as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise ConfigError(
                f"--format: this Spark session has no format {kind!r}; parquet is always there"
            ) from error
