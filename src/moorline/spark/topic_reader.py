"""Room: spark. Reading topics: a batch between two places, or a stream of micro-batches.

Readers are pickled into planners and tasks, which are processes of their own: they carry options and plain
values, and open what they need where they are. What a (start, end) pair gives is always the same.
Where a query goes on after a restart, and what it does about messages that are gone, is decided here.
"""

import copy
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moorline.errors import ConnectionLost, Denied, MessagesGone, NotFound, Untrusted
from moorline.journal.streams.source import Counted
from moorline.limits import SPARK_GAPS_TOLD_MAX, SPARK_NAMES_TOLD_MAX
from moorline.spark.batch_limit import is_enough, limited_by_matches, may_count
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.frames import Batches
from moorline.spark.gap_rows import GAP, GapPartition, of_gaps, of_messages, without_gap
from moorline.spark.garbage import spare_the_collector
from moorline.spark.known_topics import Unknown, names_in, unknown_to_folder, unknown_to_nodes
from moorline.spark.lag import lag_of
from moorline.spark.matching import block_of, matching_batches, telling_of_filters
from moorline.spark.options import Offsets, TopicOptions
from moorline.spark.picking import picks
from moorline.spark.planning import (
    Bounds,
    Described,
    ExtentsByShard,
    Range,
    ShardGap,
    check_order,
    ends,
    firsts,
    limited,
    ranges,
    resolved,
    tasks,
    waiting,
)
from moorline.spark.runs import ReadGap, runs
from moorline.spark.stopping import stop_on_sigterm
from moorline.spark.streams import Streams, counted, described, offsets_at, opened

log = logging.getLogger("moorline.spark")

REMEDY = "set failOnDataLoss to false to read what is left"
PUBLISH_FIRST = "publish to it first, or set failOnMissingTopic to false"


class TopicPartition(InputPartition):
    """What one task reads, each range with the addresses of its node."""

    def __init__(self, parts: list[tuple[Range, tuple[str, ...]]]) -> None:
        super().__init__(None)
        self.parts = parts

    def __repr__(self) -> str:
        return f"TopicPartition({self})"

    def __str__(self) -> str:
        texts = [f"{part.stream} from {part.first} to {part.upto - 1}" for part, _ in self.parts]
        return "; ".join(texts[:SPARK_NAMES_TOLD_MAX])


class TopicReads:
    """What batch and stream have in common."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._opened: Streams | None = None
        self.gaps: list[ShardGap] = []
        self.lost = 0
        """What was left out so far in this process, and how many messages that are."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "gaps": [], "lost": 0}

    def streams(self) -> Streams:
        if self._opened is None:
            options = self.options
            filters = options.filters if options.is_filtered_by_nodes else ()
            self._opened = opened(options.path, options.node, options.endpoint, filters)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # --- planning ---------------------------------------------------------------------------------

    def described(self, since: Offsets, *, needs_all: bool) -> Described:
        """How far all shards go now, and the streams of some from an offset on; whether a node of the
        cluster may be away is the caller's."""
        streams = self.streams()
        with naming_endpoint(self.options.endpoint), telling_of_filters(self.options):
            found = described(streams, since)
        away = ", ".join(streams.silent())
        if away and needs_all and self.options.fail_on_loss:
            raise ConnectionLost(
                f"the streams of {away} are not known now, the node does not answer: start it, or {REMEDY}"
            )
        if away:
            log.warning("streams are left out, their node does not answer", extra={"nodes": away})
        return found

    def bounds(self, *, needs_all: bool) -> Bounds:
        return self.described({}, needs_all=needs_all).bounds

    def start(self, bounds: Bounds) -> Offsets:
        if self.options.starting_us >= 0:
            return {**ends(bounds), **offsets_at(self.streams(), self.options.starting_us)}
        return resolved(self.options.starting, "earliest", bounds, "startingOffsets")

    def end(self, bounds: Bounds) -> Offsets:
        if self.options.ending_us >= 0:
            return {**ends(bounds), **offsets_at(self.streams(), self.options.ending_us)}
        return resolved(self.options.ending, "latest", bounds, "endingOffsets")

    def plan(
        self, start: Offsets, end: Offsets, shard_extents: ExtentsByShard
    ) -> list[InputPartition]:
        """The tasks between two places."""
        return self.planned(*ranges(start, end, shard_extents))

    def planned(self, found: list[Range], gaps: Sequence[ShardGap]) -> list[InputPartition]:
        """A task for each part; and one for what is gone, where its rows are asked for."""
        self.report(gaps)
        parts = tasks(found, self.options.min_partitions, self.options.max_records)
        made: list[InputPartition] = [
            TopicPartition([(one, self.streams().addresses(one.stream.home)) for one in part])
            for part in parts
        ]
        if gaps and GAP in self.schema.names:
            made.append(GapPartition(gaps))
        return made

    def report(self, gaps: Sequence[ShardGap]) -> None:
        """Messages that retention took, or that were never there: an error, or a line in the log."""
        # A batch is looked at when its end is found and when it is planned.
        new = [one for one in gaps if one not in self.gaps]
        if not new:
            return
        text = "; ".join(map(str, new))
        if self.options.fail_on_loss:
            raise MessagesGone(f"gone before they were read: {text}: {REMEDY}")
        log.warning("messages are gone: %s", text)
        self._left_out(new)

    def _left_out(self, gaps: Sequence[ShardGap]) -> None:
        self.gaps += gaps
        self.lost += sum(one.messages for one in gaps)

    def told_gaps(self) -> dict[str, Any]:
        """For the progress of a query: what it has left out so far, if anything."""
        if not self.lost:
            return {}
        del self.gaps[:-SPARK_GAPS_TOLD_MAX]
        return {"lost": {"messages": self.lost, "ranges": list(map(str, self.gaps))}}

    def check_topics(self, bounds: Bounds) -> None:
        """Topics that are named and of which there is nothing: an error, or a line in the log."""
        names = names_in(self.options.filters)
        if not names:
            return
        try:
            unknown = self._unknown(names, bounds)
        except Denied as error:
            if not self.options.is_filtered_by_nodes:
                raise
            log.warning("whether there are these topics is not told: %s", error)
            return
        if not unknown.topics:
            return
        away = self.streams().silent()
        if self.options.fail_on_missing and unknown.is_certain and not away:
            raise NotFound(f"topics: {unknown}: {PUBLISH_FIRST}")
        log.warning("topics: %s", unknown)

    def _unknown(self, names: frozenset[str], bounds: Bounds) -> Unknown:
        options = self.options
        if options.path:
            return unknown_to_folder(names, options.path, self.streams().extents(), self._scan)
        nodes = {shard.rpartition("/")[0] for shard in bounds}
        addresses = {node: self.streams().addresses(node) for node in sorted(nodes)}
        return unknown_to_nodes(names, options.endpoint, addresses)

    def _scan(self, parts: list[Range], names: frozenset[str]) -> set[str]:
        """Those of the topics that have messages there."""
        wanted = msgspec.structs.replace(self.options, filters=tuple(names), fail_on_loss=False)
        reads = TopicReads(wanted, StructType().add("topic", "string"))
        found: set[str] = set()
        for part in parts:
            for batch in reads.batches(TopicPartition([(part, ())])):
                found.update(batch.column("topic").unique().to_pylist())
            if found == names:
                break
        return found

    # --- in a task --------------------------------------------------------------------------------

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What a task gives: messages, and a row for each gap where these are asked for."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if GAP not in self.schema.names:
            yield from self._messages(partition)
            return
        schema = to_arrow_schema(self.schema, timezone="UTC")
        if isinstance(partition, GapPartition):
            yield of_gaps(partition.gaps, schema)
            return
        plain = copy.copy(self)
        plain.schema, plain.gaps = without_gap(self.schema), []
        for batch in plain._messages(partition):  # noqa: SLF001  # a copy of ours
            yield of_messages(batch, schema)
        if plain.gaps:
            yield of_gaps(plain.gaps, schema)

    def _messages(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches(partition)
        except Untrusted as error:
            raise Untrusted(f"{partition} cannot be read: {error}") from None
        except ConnectionLost as error:
            raise ConnectionLost(f"{partition} cannot be read, its node is away: {error}") from None

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        if not isinstance(partition, TopicPartition):
            return  # Spark's own, in place of no partition at all
        import polars_hash  # noqa: F401  # what the first block would import counts too

        spare_the_collector()
        made = Batches(to_arrow_schema(self.schema, timezone="UTC"), self.options.filters)
        try:
            for part, addresses in partition.parts:
                yield from self._read(part, addresses, made)
        finally:
            self.close()

    def _read(
        self, part: Range, addresses: tuple[str, ...], made: Batches
    ) -> Iterator[pa.RecordBatch]:
        if self.options.is_filtered_by_nodes:
            yield from matching_batches(self.streams(), part, addresses, made, self.report)
            return
        with telling_of_filters(self.options):
            segment = self.streams().segment(part.stream, addresses)
        label = str(part.stream)
        if segment is None:
            self.report([ShardGap(str(part.stream.shard), part.first, part.upto)])
            return
        try:
            at = part.first
            # With `includeSystem`: who wants the columns that only what is stored has wants all of it.
            as_stored = "raw_headers" in self.schema.names
            for picked in picks(segment, part, self.options.filters, as_stored=as_stored):
                batch = made.batch(block_of(picked.data), label) if picked.data else None
                if batch is not None:
                    yield batch
                at = picked.upto
            for block in runs(segment, at, part.upto, verify=self.options.verify_checks):
                if isinstance(block, ReadGap):
                    self._damaged(segment.name, label, block)
                    continue
                batch = made.batch(block, label)
                if batch is not None:
                    yield batch
        finally:
            segment.close()

    def _damaged(self, name: str, stream: str, gap: ReadGap) -> None:
        count = gap.upto - gap.first
        text = (
            f"{name}: damaged at byte {gap.position}: {count} messages of {stream}, "
            f"{gap.first} to {gap.upto - 1}, cannot be read"
        )
        if self.options.fail_on_loss:
            raise MessagesGone(f"{text}: {REMEDY}")
        log.warning("%s", text)
        self._left_out([ShardGap(stream, gap.first, gap.upto, "DAMAGE")])


class TopicBatchReader(TopicReads, DataSourceReader):
    """`spark.read`: what there is between two places."""

    def partitions(self) -> Sequence[InputPartition]:
        try:
            bounds = self.bounds(needs_all=True)
            self.check_topics(bounds)
            start, end = self.start(bounds), self.end(bounds)
            check_order(start, end)
            return self.plan(start, end, self.described(start, needs_all=True).shard_extents)
        finally:
            self.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)


class TopicStreamReader(TopicReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. An offset of it is the next message of each shard.

    A shard that appears while the query runs is first noted at its beginning, and read with the batch
    after that: so its beginning is in the checkpoint too.
    """

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offsets | None = None
        self._goal: Offsets | None = None
        self._ended: Offsets = {}
        """Where the batch ends that is planned now."""
        self._batch_ms = _now_ms()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        stop_on_sigterm()
        # Spark asks more than once, and "latest" must not move meanwhile.
        if self._initial is None:
            bounds = self.bounds(needs_all=True)
            self.check_topics(bounds)
            self._initial = self.start(bounds)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self.options.max_offsets
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._goal = ends(self.bounds(needs_all=True))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        stop_on_sigterm()
        bounds, shard_extents = self.described(start, needs_all=False)
        end = self._reached(start, bounds)
        self._ended = start
        if self._waits_for_more(start, end):
            return start
        self._batch_ms = _now_ms()
        if isinstance(limit, ReadMaxRows):
            end = self._limited(start, end, limit.max_rows)
        # Spark asks for the progress of a batch before it is planned: what is gone shall be in it.
        self.report(ranges(start, end, shard_extents)[1])
        self._ended = end
        return end

    def _reached(self, start: Offsets, bounds: Bounds) -> Offsets:
        """How far the next batch may go; a shard whose node is away stays where it is."""
        now, first = ends(bounds), firsts(bounds)
        goal = self._goal
        found = dict(start)
        for shard, end in now.items():
            if shard not in start:
                if goal is None or shard in goal:
                    found[shard] = first[shard]
                continue
            if end < start[shard]:
                # A folder that was restored from before the checkpoint.
                self.report([ShardGap(shard, end, start[shard])])
            upto = end if goal is None else min(end, goal.get(shard, start[shard]))
            found[shard] = max(start[shard], upto)
        return found

    def _limited(self, start: Offsets, end: Offsets, rows_max: int) -> Offsets:
        """The limit counts what may match, as far as that is known; what cannot is passed over."""
        if waiting(start, end) <= rows_max:
            return end
        if may_count(self.options.filters):
            return limited_by_matches(start, end, rows_max, self._count)
        return limited(start, end, rows_max)

    def _count(self, since: Offsets, count_max: Offsets) -> dict[str, Counted]:
        return counted(self.streams(), since, self.options.filters, count_max)

    def _waits_for_more(self, start: Offsets, end: Offsets) -> bool:
        """Whether there is too little for a batch yet."""
        rows_min = self.options.min_offsets
        if self._goal is not None or len(end) > len(start) or not rows_min:
            return False
        if _now_ms() - self._batch_ms >= self.options.max_delay_ms:
            return False
        if waiting(start, end) < rows_min:
            return True
        return may_count(self.options.filters) and not is_enough(start, end, rows_min, self._count)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of all shards, how far they are behind the batch, and what this run found gone."""
        bounds = self.bounds(needs_all=False)
        lag = lag_of(end - self._ended.get(shard, first) for shard, (first, end) in bounds.items())
        return {**ends(bounds), **lag.told(), **self.told_gaps()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        stop_on_sigterm()
        shard_extents = self.described(start, needs_all=False).shard_extents
        away = set(self.streams().silent())
        for shard, upto in end.items():
            # Whose node is away is not gone: the batch is planned again when it is back.
            if upto > start.get(shard, upto) and shard.rpartition("/")[0] in away:
                raise ConnectionLost(
                    f"the batch has messages of {shard}, whose node is away: start it"
                )
        return self.plan(start, end, shard_extents)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is taken from a topic by reading it."""

    def stop(self) -> None:
        self.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
