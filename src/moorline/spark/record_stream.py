"""Room: spark. Changes of a registered table as a stream, as far as we may see them.

    spark.readStream.format("moorline").option("records", "experiments").option("includeKind", "true")

The process of the query listens, from the cursor of its last batch on; an offset is that cursor, which is all
the state there is: any node goes on from it. A batch has what changed since the last one, net, a row for each
key. Where a cursor cannot be replayed (the log does not reach back, rights or the table are others since) all
rows come, behind a row of the kind `snapshot` that says so.

A batch that Spark runs again in the same process is the same one. Behind a restart it is read anew from where
it began, and then has what changed since, up to now; the next one may say some of that once more. So whoever
takes rows in the order of batches, the last of a key, holds the table; and nothing is passed over.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from moorline.core.records.merge import DELETION, MARKER, RECORD
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.loop_thread import LoopThread
from moorline.spark.record_reader import RecordOptions, Row, batches_of, record_options
from moorline.spark.stopping import stop_on_sigterm

if TYPE_CHECKING:
    from moorline.client.records.feed import FeedBatch, RecordFeed

log = logging.getLogger("moorline.spark")

Offset = dict[str, str]


def stream_reader(options: Mapping[str, str], schema: StructType) -> "RecordStreamReader":
    return RecordStreamReader(record_options(options), schema)


class RecordListener(LoopThread):
    """From a cursor on. What is named without `_` is for the thread of Spark."""

    def __init__(self, options: RecordOptions, cursor: str) -> None:
        super().__init__("moorline-records")
        self._options = options
        self._stack = AsyncExitStack()
        self._feed: RecordFeed | None = None
        self.run(self._open(cursor))

    def take(self) -> "FeedBatch":
        async def take() -> "FeedBatch":
            assert self._feed is not None
            return self._feed.take()

        return self.run(take())

    def waiting(self) -> int:
        async def waiting() -> int:
            return 0 if self._feed is None else len(self._feed)

        return self.run(waiting())

    async def _open(self, cursor: str) -> None:
        moor = await self._stack.enter_async_context(self._options.connecting())
        feed = moor.record_feed(self._options.asked(), cursor)
        self._feed = await self._stack.enter_async_context(feed)
        await feed.begun()

    async def _say_goodbye(self) -> None:
        await self._stack.aclose()


class ChangesPartition(InputPartition):
    """The rows of a batch, as they are."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(None)
        self.rows = rows


class RecordStreamReader(DataSourceStreamReader):
    """The listener lives in the process of the query; a task makes columns of what it has heard."""

    def __init__(self, options: RecordOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._listener: RecordListener | None = None
        self._batches: dict[str, list[Row]] = {}
        """By the cursor at their end: those that Spark may still ask for."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_listener": None, "_batches": {}}

    def listener(self, cursor: str) -> RecordListener:
        stop_on_sigterm()
        if self._listener is None:
            with naming_endpoint(self._options.endpoint):
                self._listener = RecordListener(self._options, cursor)
        return self._listener

    # --- what Spark asks --------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"cursor": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002
        at = start["cursor"]
        later = [cursor for cursor in self._batches if cursor != at]
        if later:
            return {"cursor": later[-1]}  # asked once more, before there was a batch of it
        batch = self.listener(at).take()
        rows = rows_of(batch)
        if not rows or batch.cursor == at:
            return start
        self._batches[batch.cursor] = rows
        return {"cursor": batch.cursor}

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """How many rows have changed and are in no batch yet."""
        return None if self._listener is None else {"waiting": self._listener.waiting()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        rows = self._batches.get(end["cursor"])
        if rows is None:
            rows = self._read_again(start["cursor"])
        return [ChangesPartition(rows)]

    def _read_again(self, cursor: str) -> list[Row]:
        """A batch of a process that is gone."""
        log.warning(
            "a batch is read anew from where it began: it has what changed since, up to now"
        )
        with naming_endpoint(self._options.endpoint):
            listener = RecordListener(self._options, cursor)
        try:
            return rows_of(listener.take())
        finally:
            listener.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangesPartition)
        yield from batches_of(partition.rows, self._schema)

    def commit(self, end: Offset) -> None:
        self._batches.pop(end["cursor"], None)

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def rows_of(batch: "FeedBatch") -> list[Row]:
    rows: list[Row] = [(None, None, None, MARKER)] if batch.is_whole else []
    for key, change in batch.changes.items():
        text = msgspec.json.encode(key).decode()
        if change is None:
            rows.append((text, None, None, DELETION))
        else:
            seq, data = change
            row = msgspec.json.encode(batch.facts.read(data)).decode()
            rows.append((text, seq, row, RECORD))
    return rows
