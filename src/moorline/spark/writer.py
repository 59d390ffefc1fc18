"""Room: spark. Writing to topics and queues: staged in the tasks, published once by the driver's commit.

    df.select("topic", "key", "value").write.format("moorline").option("address", …).mode("append").save()

A task stages its rows at the node (wire.staging) and returns the name, count and hash of its stage. The
driver's commit names the stages; the node publishes them as a batch of a query, and never a batch twice.
A streaming query has its own id and the number of its batch. A batch write draws an id when it is planned,
unless the options `query` and `batch` give one: then the same write, run again, publishes nothing.
"""

import contextlib
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
import xxhash
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from moorline.core.topic import check_topic
from moorline.errors import BadTopic, ConfigError, ConnectionLost, MoorlineError, Untrusted
from moorline.ids import id_of
from moorline.limits import (
    SPARK_CHUNKS_IN_FLIGHT,
    SPARK_COMMIT_MS_MAX,
    SPARK_COMMIT_PAUSE_MS,
    SPARK_LINK_TRIES,
)
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.node_link import Links, address_of
from moorline.spark.options import ENDPOINT, TABLES, Endpoint, check_names, writing_endpoint_of
from moorline.spark.rows import Columns, chunks_of, columns_of
from moorline.spark.write_pace import pace_of, stage_in_time
from moorline.wire.access import Identified, WhoAmI
from moorline.wire.message import Answer, Message
from moorline.wire.staging import (
    BATCH_MAX,
    QUERY_BYTES_MAX,
    QUEUES,
    STAGES_PER_COMMIT_MAX,
    TOPICS,
    AbortStaged,
    CloseStage,
    CommitStaged,
    OpenStage,
    RowsStaged,
    StageClosed,
    StageOpened,
    StageRows,
    StagesAborted,
    StagesCommitted,
    query_key,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger("moorline.spark")

OPTIONS = (*ENDPOINT, "node", "topic", "queue", "query", "batch", "deadLetterTopic")
SPARKS_OPTIONS = ("checkpointLocation", "path", "queryName")
"""What Spark itself puts among the options of a query."""

Reply = TypeVar("Reply", bound=Answer)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver; without rows there is no stage."""

    query: str
    batch: int
    stage: bytes
    count: int
    hash: bytes


class Destination(msgspec.Struct, frozen=True):
    """Plain values: it is pickled into tasks and committers."""

    endpoint: Endpoint
    columns: Columns
    aside: str = ""
    """A topic for rows that their queue refuses; without one they fail the write."""


def writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of `df.write`."""
    query, batch = _named_batch(options)
    destination = _destination(options, schema, overwrite=overwrite, has_query=bool(query))
    return BatchWriter(destination, query, batch)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream`."""
    if {"query", "batch"} & {name.lower() for name in options}:
        raise ConfigError("query, batch: a streaming query has its own; they are for df.write")
    return StreamWriter(_destination(options, schema, overwrite=overwrite, has_query=True))


class BatchWriter(DataSourceArrowWriter):
    """One instance for the whole job, pickled into its tasks: so they all know its id."""

    def __init__(self, destination: Destination, query: str = "", batch: int = 0) -> None:
        self._destination = destination
        self._query = query or f"write-{secrets.token_hex(16)}"
        self._batch = batch

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        return stage(self._destination, self._query, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        answer = commit(self._destination, self._query, self._batch, _staged(messages))
        if answer is not None and answer.already and answer.last > self._batch:
            raise ConfigError(
                f"batch: {self._batch} of the query {self._query!r} comes after {answer.last}: nothing was "
                f"published; give a number above {answer.last}, or another query"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort(self._destination, self._query, self._batch, _staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """A fresh one for every batch: what the driver must know comes with the messages."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        if not query or batch is None:
            raise MoorlineError("this task knows no query and batch: is it one of a stream?")
        return stage(self._destination, query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if staged:
            answer = commit(self._destination, staged[0].query, batchId, staged)
            if answer is not None and answer.already and answer.last > batchId:
                log.warning(
                    "batch %d was published before, up to %d: is this an old checkpoint?",
                    batchId,
                    answer.last,
                )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if staged:
            abort(self._destination, staged[0].query, batchId, staged)


# --- the three steps ------------------------------------------------------------------------------


def stage(
    destination: Destination,
    query: str,
    batch: int,
    batches: Iterator["RecordBatch"],
    place: int | None = None,
) -> Staged:
    """In a task: its rows, durable at the node and seen by nobody. What fails leaves nothing behind.

    `place` is which part of the batch it is, where the task of Spark's does not say so.
    """
    context = TaskContext.get()
    partition = place if place is not None else context.partitionId() if context else 0
    attempt = context.taskAttemptId() if context else 0
    target = QUEUES if destination.columns.is_queues else TOPICS
    filled = (one for one in batches if one.num_rows)
    first = next(filled, None)
    if first is None:
        return Staged(query, batch, b"", 0, b"")
    hasher, count = xxhash.xxh3_128(), 0
    with _linked(destination.endpoint) as link:
        opened = link.call(
            lambda call: OpenStage(call, query, batch, partition, attempt, target),
            StageOpened,
            SPARK_LINK_TRIES,
        )
        name = opened.stage
        pace = pace_of(link)
        in_flight: deque[Callable[[], RowsStaged]] = deque()
        for one in itertools.chain([first], filled):
            for rows in pace.portions(one):
                for chunk in chunks_of(rows, destination.columns, opened.shards, pace.bytes_max):
                    hasher.update(chunk.rows)
                    count += chunk.count
                    if pace.is_bounded:
                        stage_in_time(link, _rows(name, chunk.rows))
                        continue
                    in_flight.append(link.begin(_rows(name, chunk.rows), RowsStaged))
                    while len(in_flight) >= SPARK_CHUNKS_IN_FLIGHT:
                        in_flight.popleft()()
        for answered in in_flight:
            answered()
        hash_ = hasher.digest()
        link.call(lambda call: CloseStage(call, name, count, hash_), StageClosed)
    return Staged(query, batch, name, count, hash_)


def commit(
    destination: Destination, query: str, batch: int, staged: list[Staged]
) -> StagesCommitted | None:
    """In the driver. Said again until it is answered: the node publishes a batch once. None without rows."""
    stages = [(one.stage, one.count, one.hash) for one in staged if one.stage]
    if not stages:
        return None
    if len(stages) > STAGES_PER_COMMIT_MAX:
        raise ConfigError(
            f"{len(stages)} partitions have rows; one write takes {STAGES_PER_COMMIT_MAX}: coalesce them"
        )
    end = time.monotonic() + SPARK_COMMIT_MS_MAX / 1_000
    while True:
        try:
            answer = _once(
                destination.endpoint,
                lambda call: CommitStaged(call, query, batch, stages, destination.aside),
                StagesCommitted,
            )
        except Untrusted:
            raise
        except ConnectionLost:
            if time.monotonic() > end:
                raise
            time.sleep(SPARK_COMMIT_PAUSE_MS / 1_000)
        else:
            break
    for queue, code, messages in answer.refused:
        log.warning("the queue %s refused %d messages: %s", queue, messages, code)
    if answer.aside:
        log.warning(
            "%d rows of batch %d of %s went to the topic %s, and %d to their queues",
            answer.aside,
            batch,
            query,
            destination.aside,
            answer.published,
        )
    return answer


def abort(destination: Destination, query: str, batch: int, staged: list[Staged]) -> None:
    """In the driver. A stage that stays is removed by the node after a day."""
    names = [one.stage for one in staged if one.stage]
    if not names:
        return
    try:
        _once(
            destination.endpoint, lambda call: AbortStaged(call, query, batch, names), StagesAborted
        )
    except MoorlineError as error:
        log.warning("stages are left to the node: %s", error)


def _rows(name: bytes, rows: bytes) -> Callable[[int], Message]:
    return lambda call: StageRows(call, name, rows)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Those of tasks that succeeded."""
    return [message for message in messages if isinstance(message, Staged)]


class _Link:
    """Calls to one node from code that is not asynchronous."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._links = Links(endpoint)
        self._addresses = (endpoint.address,)

    def begin(
        self, make: Callable[[int], Message], reply: type[Reply], tries_max: int = 1
    ) -> Callable[[], Reply]:
        """A stage belongs to its connection: what is said of it is not said again on another."""
        return self._links.begin(self._links.ask(self._addresses, make, reply, tries_max))

    def call(self, make: Callable[[int], Message], reply: type[Reply], tries_max: int = 1) -> Reply:
        return self.begin(make, reply, tries_max)()

    def close(self) -> None:
        self._links.close()


@contextlib.contextmanager
def _linked(endpoint: Endpoint) -> Iterator[_Link]:
    link = _Link(endpoint)
    with naming_endpoint(endpoint):
        try:
            yield link
        finally:
            link.close()


def key_at(endpoint: Endpoint, query: str) -> str:
    """What the node knows the query by, if we write by it: the name is one within our principal."""
    return query_key(_once(endpoint, WhoAmI, Identified).principal, query)


def _once(endpoint: Endpoint, make: Callable[[int], Message], reply: type[Reply]) -> Reply:
    with _linked(endpoint) as link:
        return link.call(make, reply, SPARK_LINK_TRIES)


# --- options --------------------------------------------------------------------------------------


def _destination(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, has_query: bool
) -> Destination:
    own = {name: value for name, value in options.items() if name.lower() not in _SPARKS}
    if "values" in {name.lower() for name in own}:
        raise ConfigError(
            "values: they live as long as their publisher, and Spark ends the process of a writer: use "
            "moorline.spark.ValuePublisher"
        )
    check_names(own, OPTIONS)
    if not own:
        # So comes an INSERT into a table of CREATE TABLE, whatever node its OPTIONS had named.
        raise ConfigError(f"where to? Give the option address; of a table, {TABLES}")
    if overwrite:
        raise ConfigError(
            "what is published cannot be overwritten: use mode('append'), or outputMode('append')"
        )
    given = {name.lower(): value for name, value in options.items()}
    topic, queue = given.get("topic", ""), given.get("queue", "")
    if topic and queue:
        raise ConfigError("topic and queue: give one")
    if topic:
        _check_topic(topic, "topic")
    queue_id = _queue_id(queue)
    columns = columns_of(schema, topic, queue_id)
    aside = given.get("deadlettertopic", "")
    if aside and not columns.is_queues:
        raise ConfigError("deadLetterTopic: topics refuse nothing; it is for writes to queues")
    if aside:
        _check_topic(aside, "deadLetterTopic")
    # Last: to find a node takes a while, and what is wrong with the rest is said at once.
    endpoint = writing_endpoint_of(options, queue=queue_id, has_query=has_query)
    address_of(endpoint.address)
    return Destination(endpoint, columns, aside)


def _check_topic(topic: str, option: str) -> None:
    try:
        check_topic(topic)
    except BadTopic as error:
        raise ConfigError(f"{option}: {error}") from None


_SPARKS = {name.lower() for name in SPARKS_OPTIONS}


def _queue_id(text: str) -> bytes:
    try:
        return id_of(text) if text else b""
    except MoorlineError as error:
        raise ConfigError(f"queue: {error}") from None


def _named_batch(options: Mapping[str, str]) -> tuple[str, int]:
    given = {name.lower(): value for name, value in options.items()}
    query, batch = given.get("query", ""), given.get("batch", "0")
    if len(query) > QUERY_BYTES_MAX:
        raise ConfigError(f"query: at most {QUERY_BYTES_MAX} characters")
    if not batch.isdecimal() or int(batch) > BATCH_MAX:
        raise ConfigError(f"batch: {batch!r}: accepted: 0 to {BATCH_MAX}")
    if "batch" in given and not query:
        raise ConfigError("batch: it is a batch of which query? give query too")
    return query, int(batch)
