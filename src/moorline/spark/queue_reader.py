"""Room: spark. The contents of queues, without taking anything: from a data folder, or from a node.

A folder is read as a node would find it after a crash, which is what `journal.queues.offline.viewed`
does, with
every repair kept in memory. The node may run: should it move files meanwhile, that page is read again.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.core.queue.queue import NODES_OWN, QUOTA_MARKER, Entry
from moorline.errors import ConfigError, FolderUnusable, Malformed, MoorlineError, NotFound
from moorline.ids import ID_BYTES, id_of, text_of
from moorline.journal.queues.files import StoreOptions
from moorline.journal.queues.offline import viewed, waiting
from moorline.journal.queues.store import Store
from moorline.journal.read_only_disk import ReadOnlyDisk
from moorline.limits import SPARK_PEEKS_IN_FLIGHT, SPARK_QUEUES_PER_PAGE, SPARK_VIEW_TRIES
from moorline.spark.endpoint_errors import naming_endpoint
from moorline.spark.node_link import Links
from moorline.spark.options import partitions_of, path_of, reading_endpoint_of
from moorline.wire.queue import ListQueues, QueuesListed
from moorline.wire.queue_contents import PeekQueue, QueuePeeked, WaitingMessage

FOLDER = "queues"
ALL = "*"
PARTITIONS = 4
"""Parts of all ids that are read side by side, unless `minPartitions` says otherwise."""

Contents = list[tuple[bytes, WaitingMessage]]


class QueuePartition(InputPartition):
    """Queues whose ids are behind `after` and not behind `upto`; or those that are named."""

    def __init__(self, after: bytes, upto: bytes, named: list[bytes]) -> None:
        super().__init__(None)
        self.after = after
        self.upto = upto
        self.named = named


class _Page(NamedTuple):
    contents: Contents
    next_after: bytes | None


class QueueReader(DataSourceReader):
    """`queues` is `*`, or the ids of queues with commas."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        lowered = {name.lower(): value for name, value in options.items()}
        self._path = path_of(lowered)
        if self._path and lowered.get("address"):
            raise ConfigError("path and address: give one, the folder or the node")
        self._endpoint = reading_endpoint_of(options)
        self._named = _named(lowered["queues"])
        self._parts = partitions_of(options) or PARTITIONS
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        if self._path and not (Path(self._path) / FOLDER).is_dir():
            raise FolderUnusable(f"path: {self._path} is no data folder: it has no queues")
        if self._named is not None:
            return [QueuePartition(b"", b"", self._named)]
        # Ids are drawn: equal parts of their range are equal parts of the queues.
        room = 1 << (8 * ID_BYTES)
        edges = [room * place // self._parts - 1 for place in range(self._parts + 1)]
        bounds = [edge.to_bytes(ID_BYTES, "big") if edge >= 0 else b"" for edge in edges]
        return [
            QueuePartition(bounds[place], bounds[place + 1], []) for place in range(self._parts)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, QueuePartition)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        pages = self._from_folder(partition) if self._path else self._from_node(partition)
        with naming_endpoint(self._endpoint):
            for contents in pages:
                if contents:
                    yield _batch(contents, schema)

    # --- from a folder ----------------------------------------------------------------------------

    def _from_folder(self, partition: QueuePartition) -> Iterator[Contents]:
        root = Path(self._path) / FOLDER
        after: bytes | None = partition.after
        while after is not None:
            page = _tried(root, partition, after)
            yield page.contents
            after = page.next_after

    # --- from a node ------------------------------------------------------------------------------

    def _from_node(self, partition: QueuePartition) -> Iterator[Contents]:
        links = Links(self._endpoint)
        try:
            for ids in self._pages(links, partition):
                for start in range(0, len(ids), SPARK_PEEKS_IN_FLIGHT):
                    some = ids[start : start + SPARK_PEEKS_IN_FLIGHT]
                    yield self._peeked(links, some, is_named=bool(partition.named))
        finally:
            links.close()

    def _pages(self, links: Links, partition: QueuePartition) -> Iterator[list[bytes]]:
        if partition.named:
            yield partition.named
            return
        after = partition.after
        while True:
            listed = links.call(
                (self._endpoint.address,),
                partial(ListQueues, after=after, count=SPARK_QUEUES_PER_PAGE),
                QueuesListed,
            )
            yield [one for one, size in listed.queues if size and one <= partition.upto]
            if not listed.queues or listed.queues[-1][0] > partition.upto:
                return
            after = listed.queues[-1][0]

    def _peeked(self, links: Links, ids: list[bytes], *, is_named: bool) -> Contents:
        try:
            return self._peek(links, ids)
        except NotFound:
            # The answer does not say which: they are asked for one by one.
            if len(ids) > 1:
                return [
                    one for queue in ids for one in self._peeked(links, [queue], is_named=is_named)
                ]
            if is_named:
                raise _not_there(ids[0], self._endpoint.address) from None
            return []  # it was listed, and deleted before we looked

    def _peek(self, links: Links, ids: list[bytes]) -> Contents:
        contents: Contents = []
        rest = [(one, 0) for one in ids]
        while rest:
            asked, rest = rest, []
            makes = [partial(PeekQueue, queue=one, after=after) for one, after in asked]
            answers = links.run(links.ask_all((self._endpoint.address,), makes, QueuePeeked))
            for (one, _), answer in zip(asked, answers, strict=True):
                contents += [(one, message) for message in answer.messages]
                if not answer.is_all:
                    rest.append((one, answer.messages[-1].message))
        return contents


def _named(text: str) -> list[bytes] | None:
    """The ids that were given; None for all."""
    if text.strip() == ALL:
        return None
    try:
        return [id_of(part.strip()) for part in text.split(",")]
    except Malformed as error:
        raise ConfigError(f"queues: {error}; or {ALL} for all queues") from None


def _not_there(queue: bytes, where: str) -> NotFound:
    return NotFound(
        f"queues: there is no queue {text_of(queue)} in {where}: name others, or {ALL} for all queues"
    )


def _tried(root: Path, partition: QueuePartition, after: bytes) -> _Page:
    """A page; once more, if it could not be read and files have changed meanwhile."""
    for attempt in range(SPARK_VIEW_TRIES):
        before = _stamp(root)
        try:
            return _page(root, partition, after)
        except (MoorlineError, FileNotFoundError):
            if _stamp(root) == before or attempt == SPARK_VIEW_TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


def _stamp(root: Path) -> list[tuple[str, int, int, int]]:
    """What changes whenever a node writes its log, or moves messages from it into the folders."""
    found = []
    for place in (root, root / "wal"):
        if place.is_dir():
            for entry in os.scandir(place):
                told = entry.stat()
                # A segment of the log may be written without a change of its size.
                found.append((entry.name, told.st_ino, told.st_size, told.st_mtime_ns))
    return sorted(found)


def _page(root: Path, partition: QueuePartition, after: bytes) -> _Page:
    disk = ReadOnlyDisk(root)
    with viewed(disk, StoreOptions(), lambda: time.time_ns() // 1_000_000) as (store, _):
        if partition.named:
            for one in partition.named:
                if store.glance(one) is None:
                    raise _not_there(one, str(root.parent))
            return _Page(_contents(store, partition.named), None)
        ids = store.page(after, SPARK_QUEUES_PER_PAGE)
        wanted = [one for one in ids if one <= partition.upto]
        is_last = len(ids) < SPARK_QUEUES_PER_PAGE or len(wanted) < len(ids)
        peoples = [one for one in wanted if not _is_nodes_own(store, one)]
        return _Page(_contents(store, peoples), None if is_last else ids[-1])


def _is_nodes_own(store: Store, queue_id: bytes) -> bool:
    queue = store.glance(queue_id)
    return queue is not None and store.owners[queue.owner] == NODES_OWN


def _contents(store: Store, ids: list[bytes]) -> Contents:
    contents: Contents = []
    for one in ids:
        queue = store.glance(one)
        if queue is None:
            continue
        last = 0
        for entry in waiting(store, queue):
            # A message that was moved while we looked may be in the log and in a file.
            if entry.lsn > last:
                last = entry.lsn
                contents.append((one, _message(entry)))
    return contents


def _message(entry: Entry) -> WaitingMessage:
    return WaitingMessage(entry.lsn, entry.time_ms, entry.kind == QUOTA_MARKER, entry.body)


def _batch(contents: Contents, schema: pa.Schema) -> pa.RecordBatch:
    def column(name: str) -> Any:
        match name:
            case "queue":
                return pa.array([one for one, _ in contents], pa.binary())
            case "message":
                return pa.array([message.message for _, message in contents], pa.int64())
            case "timestamp":
                times = np.array([message.time_ms for _, message in contents], np.int64)
                return pa.array(times * 1_000).cast(pa.timestamp("us", "UTC"))
            case "is_quota_marker":
                return pa.array([message.is_quota_marker for _, message in contents])
            case _:
                return pa.array([message.body for _, message in contents], pa.binary())

    return pa.RecordBatch.from_arrays([column(name) for name in schema.names], schema=schema)
