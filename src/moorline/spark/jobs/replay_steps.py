"""Room: spark. Steps of a replay: messages of an archive, staged at the node that will publish them.

Several steps are staged by one job of Spark's, whose start costs more than a step; each is committed by
itself, when its time has come.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moorline.core.frames.frame import decode_headers
from moorline.core.stream import Stream
from moorline.core.topic import Matcher, check_topic
from moorline.errors import BadTopic, ConfigError, DriftFound
from moorline.limits import REPLAY_STAGE_ROWS
from moorline.spark.frames import HEADERS_TYPE
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.manifest import ArchivedFile, by_stream
from moorline.spark.jobs.parquet import rows_between
from moorline.spark.jobs.replay_plan import Piece, Step
from moorline.spark.jobs.ttl_bits import to_seconds
from moorline.spark.options import endpoint_of
from moorline.spark.rows import Columns
from moorline.spark.writer import Destination, Staged, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moorline.spark.jobs.replay import ReplayOptions

COLUMNS = ("topic", "key", "value", "headers", "ttl_s")

Files = dict[Stream, list[ArchivedFile]]
Numbered = tuple[int, Step]
"""A step, and which one it is."""


class ReplayItem(msgspec.Struct, frozen=True):
    where: str
    target: dict[str, str]
    token: str
    step: int
    topics: list[str]
    first_us: int
    upto_us: int
    prefix: str
    place: int
    piece: Piece
    files: list[ArchivedFile]


class StagedPiece(msgspec.Struct, frozen=True):
    """What a task has staged, of which step, and as which part of it."""

    step: int
    place: int
    stage: bytes
    count: int
    hash: bytes


class Stager:
    """Stages steps, and knows which files their messages are in."""

    def __init__(
        self, spark: "SparkSession", options: "ReplayOptions", token: str, archive: Archive
    ) -> None:
        self._spark = spark
        self._options = options
        self._token = token
        self._archive = archive
        self._files: Files = by_stream(archive.live())

    def stage(self, steps: list[Numbered]) -> dict[int, list[Staged]]:
        """What is to be committed of each step, by its number."""
        try:
            return self._stage(steps)
        except DriftFound:
            # A compaction may have replaced a file meanwhile: then it is no problem at all.
            now = by_stream(self._archive.live())
            streams = {piece.stream for _, step in steps for piece in step}
            if all(now.get(stream) == self._files.get(stream) for stream in streams):
                raise
            self._files = now
            return self._stage(steps)

    def _stage(self, steps: list[Numbered]) -> dict[int, list[Staged]]:
        items = [
            self._item(number, place, piece)
            for number, step in steps
            for place, piece in enumerate(step)
        ]
        with explained():
            results = tasks.run(self._spark, stage_piece, items, StagedPiece)
        found: dict[int, list[Staged]] = {number: [] for number, _ in steps}
        for one in sorted(results, key=lambda one: (one.step, one.place)):
            found[one.step].append(Staged(self._token, one.step, one.stage, one.count, one.hash))
        return found

    def _item(self, number: int, place: int, piece: Piece) -> ReplayItem:
        options = self._options
        return ReplayItem(
            self._archive.where,
            options.target,
            self._token,
            number,
            options.filters,
            options.first_us,
            options.upto_us,
            options.prefix,
            place,
            piece,
            [file for file in self._files.get(piece.stream, []) if _meets(file, piece)],
        )


def _meets(file: ArchivedFile, piece: Piece) -> bool:
    return file.first < piece.upto and file.last >= piece.first


def destination_of(target: dict[str, str]) -> Destination:
    return Destination(endpoint_of(target), Columns(COLUMNS))


def stage_piece(item: bytes) -> Iterator[StagedPiece]:
    """In a worker: the messages of a piece, by their offsets, to the node that will publish them."""
    wanted = msgspec.json.decode(item, type=ReplayItem)
    table = _read(wanted)
    batches = iter(
        messages_of(table, wanted).to_batches(REPLAY_STAGE_ROWS) if table.num_rows else []
    )
    destination = destination_of(wanted.target)
    staged = stage(destination, wanted.token, wanted.step, batches, wanted.place)
    yield StagedPiece(wanted.step, wanted.place, staged.stage, staged.count, staged.hash)


def _read(wanted: ReplayItem) -> pa.Table:
    archive = Archive(wanted.where)
    matchers = [Matcher(text) for text in wanted.topics]
    _, first, upto = wanted.piece
    parts = [
        _chosen(batch, wanted, matchers)
        for file in wanted.files
        for batch in rows_between(archive, file, first, upto)
    ]
    if not parts:
        return pa.table({})
    table = pa.Table.from_batches(parts)
    table = table.sort_by("offset")
    offsets = table.column("offset").to_numpy()
    if len(offsets) and (np.diff(offsets) == 0).any():
        raise DriftFound(
            f"{wanted.piece[0]} has messages twice in the archive at {archive.where}: "
            "`moor pipeline verify --repair` puts it right"
        )
    return table


def _chosen(batch: pa.RecordBatch, wanted: ReplayItem, matchers: list[Matcher]) -> pa.RecordBatch:
    _, first, upto = wanted.piece
    offsets = batch.column("offset").to_numpy()
    mask = (offsets >= first) & (offsets < upto)
    mask &= is_between(batch.column("timestamp"), wanted.first_us, wanted.upto_us)
    topics = batch.column("topic").dictionary_encode()
    taken = [any(match(name) for match in matchers) for name in topics.dictionary.to_pylist()]
    mask &= np.array(taken, np.bool_)[topics.indices.to_numpy()]
    return batch.filter(pa.array(mask))


def is_between(times: pa.Array, first_us: int, upto_us: int) -> npt.NDArray[np.bool_]:
    found = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return np.asarray((found >= first_us) & (found < upto_us))


def messages_of(table: pa.Table, wanted: ReplayItem) -> pa.Table:
    """As the writer takes them; what it was stored with that a publisher does not set is left out."""
    topics = table.column("topic")
    if wanted.prefix:
        topics = pc.binary_join_element_wise(pa.scalar(wanted.prefix), topics, "")
        for name in pc.unique(topics).to_pylist():
            try:
                check_topic(name)
            except BadTopic as error:
                raise ConfigError(f"--prefix {wanted.prefix!r}: {error}") from None
    headers = table.column("raw_headers").combine_chunks()
    encoded = pc.fill_null(headers, b"").dictionary_encode()
    decoded = [
        [{"key": name, "value": value} for name, value in decode_headers(one)]
        for one in encoded.dictionary.to_pylist()
    ]
    return pa.table(
        {
            "topic": topics,
            "key": table.column("key"),
            "value": table.column("value"),
            "headers": pa.array(decoded, HEADERS_TYPE).take(encoded.indices),
            "ttl_s": to_seconds(table.column("ttl_s")),
        }
    )
