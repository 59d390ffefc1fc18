"""Room: spark. A query that is one member of a shared group, beside others that are no queries.

    spark.readStream.format("moorline").option("group", "$shared/billing/orders/#")

An offset is `{"n": number, "ranges": {"node/shard/generation": [[first, upto], …]}}`: it carries the ranges
of its own batch, so a batch that is replayed is the same one, whoever has the streams by then. Spark asks for
another batch when the last one is complete: then its ranges are acknowledged.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moorline.core.stream import Extent, Stream
from moorline.core.topic import Mode, shared_name
from moorline.errors import BadTopic, ConfigError, ConnectionLost
from moorline.limits import SPARK_SETTLE_MS_MAX, SPARK_SETTLE_PAUSE_MS
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.group_member import ALL, GroupMember, Taken, ends_of
from moorline.spark.lag import lag_of
from moorline.spark.options import ENDPOINT, Offsets, TopicOptions, check_names, topic_options
from moorline.spark.planning import Range, ShardGap, ends
from moorline.spark.stopping import stop_on_sigterm
from moorline.spark.streams import described
from moorline.spark.topic_reader import TopicReads

log = logging.getLogger("moorline.spark")

GROUP = (
    "group",
    *ENDPOINT,
    "startingOffsets",
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeSystem",
    "includeGaps",
    "verifyChecks",
)
"""The options of such a query; those about the start count where it makes the group."""

Offset = dict[str, Any]


def stream_reader(options: Mapping[str, str], schema: StructType) -> "GroupStreamReader":
    """Checks the options; the group is joined when the query begins."""
    check_names(options, GROUP)
    given = {name.lower(): value for name, value in options.items()}
    text = given.pop("group").strip()
    try:
        group = shared_name(text)
    except BadTopic as error:
        raise ConfigError(f"group: {error}") from None
    if group is None:
        raise ConfigError(f"group: {text!r} names no group: give $shared/GROUP/FILTER")
    if group.mode is Mode.QUEUE:
        raise ConfigError(
            f"group: {text!r}: a $queue group hands out single messages, and a query holds streams: "
            "give $shared/GROUP/FILTER"
        )
    # A filter may have a comma, which parts the filters of a read of topics.
    plain = topic_options({**given, "topics": "#"}, is_stream=True)
    filtered = msgspec.structs.replace(plain, filters=(group.filter,))
    return GroupStreamReader(str(group), _start(plain), filtered, schema)


def _start(options: TopicOptions) -> str:
    """Where a group begins that is not there yet."""
    if options.starting_us >= 0:
        return f"time:{options.starting_us}"
    if not isinstance(options.starting, str):
        raise ConfigError("startingOffsets: a group has its own places: give earliest or latest")
    return "beginning" if options.starting == "earliest" else "now"


class GroupStreamReader(TopicReads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The member lives in the process of the query; tasks only read ranges."""

    def __init__(self, group: str, start: str, options: TopicOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._group = group
        self._start = start
        self._member: GroupMember | None = None
        self._goal: Offsets | None = None
        self._offered: Offset | None = None
        self._finished = -1

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_member": None}

    def member(self) -> GroupMember:
        stop_on_sigterm()
        if self._member is None:
            self._member = GroupMember(self.options.endpoint, self._group, self._start)
        with naming_endpoint(self.options.endpoint):
            self._member.join()
        return self._member

    # --- what Spark asks --------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        self.member()
        return {"n": 0, "ranges": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self.options.max_offsets
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.member()
        self._goal = ends(self.bounds(needs_all=False))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        member = self.member()
        if self._offered is not None and self._offered["n"] == start["n"] + 1:
            return self._offered  # asked once more, before there was a batch of it
        self._finish(member, start)
        self.report(member.lost())
        member.wait_for_first()
        count_max = limit.max_rows if isinstance(limit, ReadMaxRows) else ALL
        taken = self._take(member, count_max)
        if not taken:
            return start
        ranges = {str(stream): sorted(map(list, found)) for stream, found in sorted(taken.items())}
        self._offered = {"n": start["n"] + 1, "ranges": ranges}
        return self._offered

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The ends of the streams that are ours, how many messages wait in them, and what was gone."""
        if self._member is None:
            return None
        held = self._member.held()
        found = {one.stream: one.end for one in self._extents(held) if one.stream in held}
        lag = lag_of(end - held[stream] for stream, end in found.items() if held[stream])
        ends_of_ours = {str(one): found[one] for one in sorted(found)}
        return {"ends": ends_of_ours, "waiting": lag.messages, **lag.told(), **self.told_gaps()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # noqa: ARG002
        # Of a batch that is replayed: nobody else should get its ranges while it runs.
        self.member()
        wanted = ranges_of(end)
        places = {stream: min(first for first, _ in parts) for stream, parts in wanted.items()}
        found, gaps = existing(wanted, self._extents(places))
        away = {one.home for one in wanted} & set(self.streams().silent())
        if away:
            raise ConnectionLost(f"the batch has messages of {', '.join(sorted(away))}: start it")
        return self.planned(found, gaps)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)

    def commit(self, end: Offset) -> None:
        self._finish(self.member(), end)

    def stop(self) -> None:
        """What is known to be complete was acknowledged; the rest is for others at once."""
        if self._member is not None:
            self._member.close()
            self._member = None
        self.close()

    # --- inside -----------------------------------------------------------------------------------

    def _finish(self, member: GroupMember, offset: Offset) -> None:
        if offset["n"] > self._finished:
            member.finish(ranges_of(offset))
            self._finished = offset["n"]

    def _take(self, member: GroupMember, count_max: int) -> Taken:
        began_ms = _now_ms()
        while True:
            held = member.held()
            extents = self._extents(held)
            taken = member.take(ends_of(extents, self._goal), count_max) if held else {}
            if taken or self._goal is None or member.is_settled(self._goal):
                return taken
            if _now_ms() - began_ms > SPARK_SETTLE_MS_MAX:
                log.warning("some streams come to nobody", extra={"group": self._group})
                return {}
            time.sleep(SPARK_SETTLE_PAUSE_MS / 1_000)

    def _extents(self, wanted: Mapping[Stream, int]) -> list[Extent]:
        """The streams from those places on; nobody is asked where none is wanted."""
        if not wanted:
            return []
        since: Offsets = {}
        for stream, at in wanted.items():
            shard = str(stream.shard)
            # The message before it: a stream that is read to its end is wanted too.
            since[shard] = min(since.get(shard, at), max(0, at - 1))
        shard_extents = described(self.streams(), since).shard_extents
        return [extent for several in shard_extents.values() for extent in several]


def ranges_of(offset: Offset) -> Taken:
    found: Taken = {}
    for label, ranges in offset["ranges"].items():
        node, shard, generation = label.rsplit("/", 2)
        stream = Stream(node, int(shard), int(generation))
        found[stream] = [(first, upto) for first, upto in ranges]
    return found


def existing(wanted: Taken, extents: Sequence[Extent]) -> tuple[list[Range], list[ShardGap]]:
    """The ranges as far as their messages are there, and those that are gone."""
    known = {one.stream: one for one in extents}
    found: list[Range] = []
    gaps: list[ShardGap] = []
    for stream, ranges in wanted.items():
        extent = known.get(stream, Extent(stream, 0, 0, True))
        for first, upto in ranges:
            start = min(max(first, extent.first), upto)
            stop = max(min(upto, extent.end), start)
            if start < stop:
                found.append(Range(stream, start, stop))
            gaps += [
                ShardGap(str(stream.shard), low, high)
                for low, high in ((first, start), (stop, upto))
                if low < high
            ]
    return found, gaps


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
