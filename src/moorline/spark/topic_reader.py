"""Room: spark. Reading topics: a batch between two places, or a stream of micro-batches.

Readers are pickled into planners and tasks, which are processes of their own: they carry options and plain
values, and open what they need where they are. What a (start, end) pair gives is always the same.
"""

import functools
import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moorline.core.stream import Extent, Stream
from moorline.errors import ConnectionLost
from moorline.spark.folder_link import FolderSegment, FolderStreams
from moorline.spark.frames import Batches
from moorline.spark.node_link import NodeSegment, NodeStreams
from moorline.spark.options import Offsets, TopicOptions
from moorline.spark.places import (
    Lines,
    MessagesGone,
    Missing,
    Range,
    ends,
    firsts,
    limited,
    lines_of,
    ranges,
    resolved,
    tasks,
)
from moorline.spark.runs import Lost, runs

log = logging.getLogger("moorline.spark")

REMEDY = "set failOnDataLoss to false to read what is left"


class Streams(Protocol):
    """Where streams are: a folder, or nodes."""

    def extents(self) -> list[Extent]: ...

    def silent(self) -> list[str]:
        """Nodes whose streams are not known now."""

    def addresses(self, node: str) -> tuple[str, ...]: ...

    def offsets_at(self, time_us: int) -> dict[str, int]: ...

    def segment(
        self, stream: Stream, addresses: tuple[str, ...]
    ) -> FolderSegment | NodeSegment | None: ...

    def close(self) -> None: ...


class TopicPartition(InputPartition):
    """What one task reads, each range with the addresses of its node."""

    def __init__(self, parts: list[tuple[Range, tuple[str, ...]]]) -> None:
        super().__init__(None)
        self.parts = parts

    def __repr__(self) -> str:
        return f"TopicPartition({[str(part.stream) for part, _ in self.parts]})"


class TopicReads:
    """What batch and stream have in common."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._opened: Streams | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def streams(self) -> Streams:
        if self._opened is None:
            options = self.options
            self._opened = (
                FolderStreams(options.path, options.node)
                if options.path
                else NodeStreams(options.reach)
            )
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # --- planning ---------------------------------------------------------------------------------

    def lines(self, *, needs_all: bool) -> Lines:
        """The streams that there are now; whether a node of the cluster may be away is the caller's."""
        streams = self.streams()
        lines = lines_of(streams.extents())
        away = ", ".join(streams.silent())
        if away and needs_all and self.options.fail_on_loss:
            raise ConnectionLost(
                f"the streams of {away} are not known now, the node does not answer: start it, or {REMEDY}"
            )
        if away:
            log.warning("streams are left out, their node does not answer", extra={"nodes": away})
        return lines

    def start(self, lines: Lines) -> Offsets:
        if self.options.starting_us >= 0:
            return {**ends(lines), **self.streams().offsets_at(self.options.starting_us)}
        return resolved(self.options.starting, "earliest", lines, "startingOffsets")

    def end(self, lines: Lines) -> Offsets:
        if self.options.ending_us >= 0:
            return {**ends(lines), **self.streams().offsets_at(self.options.ending_us)}
        return resolved(self.options.ending, "latest", lines, "endingOffsets")

    def plan(self, start: Offsets, end: Offsets, lines: Lines) -> tuple[list[InputPartition], int]:
        """The tasks between two places, and how many messages are gone."""
        found, missing = ranges(start, end, lines)
        self.report(missing)
        parts = tasks(found, self.options.min_partitions, self.options.max_records)
        planned: list[InputPartition] = [
            TopicPartition([(one, self.streams().addresses(one.stream.node)) for one in part])
            for part in parts
        ]
        return planned, sum(one.upto - one.first for one in missing)

    def report(self, missing: Sequence[Missing]) -> None:
        """Messages that retention took, or that were never there: an error, or a line in the log."""
        if not missing:
            return
        text = "; ".join(map(str, missing))
        if self.options.fail_on_loss:
            raise MessagesGone(f"gone before they were read: {text}: {REMEDY}")
        log.warning("messages are gone: %s", text)

    # --- in a task --------------------------------------------------------------------------------

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        if not isinstance(partition, TopicPartition):
            return  # Spark's own, in place of no partition at all
        _spare_the_collector()
        made = Batches(to_arrow_schema(self.schema, timezone="UTC"), self.options.filters)
        try:
            for part, addresses in partition.parts:
                yield from self._read(part, addresses, made)
        finally:
            self.close()

    def _read(
        self, part: Range, addresses: tuple[str, ...], made: Batches
    ) -> Iterator[pa.RecordBatch]:
        segment = self.streams().segment(part.stream, addresses)
        label = str(part.stream)
        if segment is None:
            self.report([Missing(str(part.stream.line), part.first, part.upto)])
            return
        try:
            for block in runs(segment, part.first, part.upto, verify=self.options.verify_checks):
                if isinstance(block, Lost):
                    self._damaged(segment.name, label, block)
                    continue
                batch = made.batch(block, label)
                if batch is not None:
                    yield batch
        finally:
            segment.close()

    def _damaged(self, name: str, stream: str, lost: Lost) -> None:
        count = lost.upto - lost.first
        text = (
            f"{name}: damaged at byte {lost.position}: {count} messages of {stream}, "
            f"{lost.first} to {lost.upto - 1}, cannot be read"
        )
        if self.options.fail_on_loss:
            raise MessagesGone(f"{text}: {REMEDY}")
        log.warning("%s", text)


class TopicBatchReader(TopicReads, DataSourceReader):
    """`spark.read`: what there is between two places."""

    def partitions(self) -> Sequence[InputPartition]:
        try:
            lines = self.lines(needs_all=True)
            return self.plan(self.start(lines), self.end(lines), lines)[0]
        finally:
            self.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.batches(partition)


class TopicStreamReader(TopicReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. An offset of it is the next message of each shard.

    A shard that appears while the query runs is first noted at its beginning, and read with the batch
    after that: so its beginning is in the checkpoint too.
    """

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offsets | None = None
        self._goal: Offsets | None = None
        self._batch_ms = _now_ms()
        self._lost = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        _stop_on_sigterm()
        # Spark asks more than once, and "latest" must not move meanwhile.
        if self._initial is None:
            self._initial = self.start(self.lines(needs_all=True))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self.options.max_offsets
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._goal = ends(self.lines(needs_all=True))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        _stop_on_sigterm()
        lines = self.lines(needs_all=False)
        end = self._reached(start, lines)
        waiting = sum(end[line] - start[line] for line in start)
        if self._waits_for_more(waiting, is_grown=len(end) > len(start)):
            return start
        self._batch_ms = _now_ms()
        return limited(start, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end

    def _reached(self, start: Offsets, lines: Lines) -> Offsets:
        """How far the next batch may go; a shard whose node is away stays where it is."""
        now, first = ends(lines), firsts(lines)
        goal = self._goal
        found = dict(start)
        for line, end in now.items():
            if line not in start:
                if goal is None or line in goal:
                    found[line] = first[line]
                continue
            if end < start[line]:
                # A folder that was restored from before the checkpoint.
                self.report([Missing(line, end, start[line])])
            upto = end if goal is None else min(end, goal.get(line, start[line]))
            found[line] = max(start[line], upto)
        return found

    def _waits_for_more(self, waiting: int, *, is_grown: bool) -> bool:
        """Whether there is too little for a batch yet."""
        if self._goal is not None or is_grown or waiting >= self.options.min_offsets:
            return False
        return _now_ms() - self._batch_ms < self.options.max_delay_ms

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """The ends of all shards, for the lag; and how many messages this run found gone, if any."""
        found = ends(self.lines(needs_all=False))
        return {**found, "lost": self._lost} if self._lost else found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        _stop_on_sigterm()
        planned, gone = self.plan(start, end, self.lines(needs_all=False))
        self._lost += gone
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is taken from a topic by reading it."""

    def stop(self) -> None:
        self.close()


@functools.cache
def _spare_the_collector() -> None:
    """Once in each worker. Spark collects garbage behind every task, which looks at all that was ever
    imported: more than 30 ms, as long as it takes to decode 200,000 messages. Modules stay anyway."""
    import polars_hash  # noqa: F401  # what the first block would import counts too

    gc.freeze()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _stop_on_sigterm() -> None:
    """Spark ends the process of a query with SIGTERM and without `stop`: an exit makes it come."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
