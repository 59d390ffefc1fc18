"""Room: spark. Live values as a stream: a micro-batch has the updates that came since the last one.

    spark.readStream.format("moorline").option("values", "/oslo/**").option("address", "moor://host1,host2")

An offset is `{"n": count}`: how many updates this query has put into batches since its checkpoint began. It
names no place at which they could be read again, for values are kept nowhere: a batch that Spark runs again
in the same process is the same one, and one that it runs again behind a restart has no rows. What follows
then begins with a snapshot, a first value of each path. So updates are seen at most once.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from moorline.errors import ConfigError
from moorline.limits import SPARK_UPDATES_PER_TASK
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.gathered import ValueRow
from moorline.spark.stopping import stop_on_sigterm
from moorline.spark.value_gatherer import ValueGatherer
from moorline.spark.value_reader import ValueOptions, batch_of, value_options

log = logging.getLogger("moorline.spark")

Offset = dict[str, int]
OF_SNAPSHOTS = ("minPartitions", "failOnVanished")


def stream_reader(options: Mapping[str, str], schema: StructType) -> "ValueStreamReader":
    for name in OF_SNAPSHOTS:
        if name.lower() in {one.lower() for one in options}:
            raise ConfigError(f"{name}: it is for a snapshot: use it with spark.read")
    return ValueStreamReader(value_options(options), schema)


class UpdatesPartition(InputPartition):
    """Some updates of a batch, as they are."""

    def __init__(self, rows: list[ValueRow]) -> None:
        super().__init__(None)
        self.rows = rows


class ValueStreamReader(DataSourceStreamReader):
    """The subscriber lives in the process of the query; tasks make columns of what it has gathered."""

    def __init__(self, options: ValueOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._gatherer: ValueGatherer | None = None
        self._batches: dict[int, list[ValueRow]] = {}
        """By the number at their end: those that Spark may still ask for."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_gatherer": None, "_batches": {}}

    def gatherer(self) -> ValueGatherer:
        stop_on_sigterm()
        if self._gatherer is None:
            made = ValueGatherer(self._options.endpoint, self._options.glob)
            try:
                with naming_endpoint(self._options.endpoint):
                    made.begin_following()
            except BaseException:
                made.close()
                raise
            self._gatherer = made
        return self._gatherer

    # --- what Spark asks --------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002
        gatherer = self.gatherer()
        self._forget(start["n"])
        if self._batches:
            return {"n": max(self._batches)}  # asked once more, before there was a batch of it
        rows = gatherer.take()
        if not rows:
            return start
        end = start["n"] + len(rows)
        self._batches[end] = rows
        return {"n": end}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """How many updates wait, how many were replaced by later ones, and how many paths are followed."""
        return self._gatherer.facts() if self._gatherer is not None else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        rows = self._batches.get(end["n"])
        if rows is None:
            log.warning(
                "the batch of %d updates before %d went with the process that had gathered them; "
                "a snapshot follows",
                end["n"] - start["n"],
                end["n"],
            )
            rows = []
        cuts = range(0, max(len(rows), 1), SPARK_UPDATES_PER_TASK)
        return [UpdatesPartition(rows[at : at + SPARK_UPDATES_PER_TASK]) for at in cuts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, UpdatesPartition)
        yield batch_of(partition.rows, self._options, self._schema)

    def commit(self, end: Offset) -> None:
        self._forget(end["n"])

    def stop(self) -> None:
        if self._gatherer is not None:
            self._gatherer.close()
            self._gatherer = None

    def _forget(self, upto: int) -> None:
        self._batches = {end: rows for end, rows in self._batches.items() if end > upto}
