"""Room: spark. `replay`: messages of an archive back into topics, once each, at a bounded rate.

A replay has a token and a plan, both kept in the archive: steps, each some ranges of streams. A step is
staged by tasks that read the files themselves, and published by one commit, fenced by (token, step). So a
replay that was interrupted goes on where it was, a step that is tried again publishes nothing, and a
replay that is over adds only what the archive got since.

A shard is one task of a step, its messages in the order of their offsets: the order of a key is kept. A
replay is history and not state: the mark of a retained message is left out, or the last word of a topic would
be one of long ago for everybody who subscribes from then on.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from moorline.core.frame import decode_headers
from moorline.core.stream import Stream
from moorline.core.topic import Matcher, check_filter, check_topic
from moorline.errors import BadTopic, ConfigError, DriftFound
from moorline.limits import REPLAY_STAGE_ROWS, REPLAY_TOKEN_LENGTH_MAX
from moorline.spark.frames import HEADERS_TYPE
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.failures import explained
from moorline.spark.jobs.manifest import MAX_US, ArchivedFile, by_stream
from moorline.spark.jobs.parquet import rows_between
from moorline.spark.jobs.replay_plan import Piece, Plan, Step
from moorline.spark.jobs.ttl_bits import to_seconds
from moorline.spark.jobs.watching import Seen, nobody
from moorline.spark.options import reach_of
from moorline.spark.rows import Columns
from moorline.spark.writer import Destination, Staged, commit, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = re.compile(rf"[A-Za-z0-9._-]{{1,{REPLAY_TOKEN_LENGTH_MAX}}}")

COLUMNS = ("topic", "key", "value", "headers", "ttl_s")

Files = dict[Stream, list[ArchivedFile]]


class ReplayOptions(msgspec.Struct, frozen=True):
    """Which messages of which archive go where. Times are microseconds; rate 0 is as fast as it goes."""

    where: str
    target: dict[str, str]
    topics: str = "#"
    first_us: int = 0
    upto_us: int = MAX_US
    prefix: str = ""
    rate: int = 0
    token: str = ""

    @property
    def address(self) -> str:
        return reach_of(self.target).address

    def name(self, archive_id: str) -> str:
        """The token, given or made of what the replay is: the same command is the same replay.

        Neither the path of the archive nor the certificates are part of it: they may change.
        """
        if self.token:
            return self.token
        what = (archive_id, self.address, self.topics, self.first_us, self.upto_us, self.prefix)
        return f"replay-{xxhash.xxh3_64_hexdigest(msgspec.json.encode(what))}"


class Progress(msgspec.Struct, frozen=True):
    """How many steps are published, and how many messages they had."""

    done: int = 0
    messages: int = 0


class Replayed(msgspec.Struct, frozen=True):
    """`messages` were published by this run; `messages_in_all` by the replay."""

    token: str
    messages: int
    messages_in_all: int
    steps: int
    seconds: float


def replay(
    spark: "SparkSession",
    options: ReplayOptions,
    seen: Seen = nobody,
    pause: Callable[[float], None] = time.sleep,
) -> Replayed:
    archive = opened(options)
    token = options.name(archive.holdings().id or archive.of_spark)
    progress = _progress(archive, token)
    live = archive.live()
    plan = _planned(archive, options, token, live, progress.done)
    began, first = time.monotonic(), progress
    publisher = _Publisher(spark, options, token, archive, by_stream(live))
    total, passed = sum(_rows_in(step) for step in plan.steps()), 0
    for number, step in enumerate(plan.steps()):
        if number >= first.done:
            seen(passed, total)
            step_began = time.monotonic()
            count = publisher.publish(number, step)
            progress = Progress(number + 1, progress.messages + count)
            archive.write_own(_progress_name(token), progress)
            # Each step has its own time, and none catches up on another: so no second has more.
            early_s = (
                count / options.rate - (time.monotonic() - step_began) if options.rate else 0.0
            )
            if early_s > 0:
                pause(early_s)
        passed += _rows_in(step)
    seen(total, total)
    return Replayed(
        token,
        progress.messages - first.messages,
        progress.messages,
        progress.done - first.done,
        round(time.monotonic() - began, 3),
    )


def opened(options: ReplayOptions) -> Archive:
    """The archive, if there is one that can be read; and if what is asked for can be."""
    archive = Archive(options.where)
    if archive.holdings().format != "parquet":
        raise ConfigError(
            f"the archive at {archive.where} is {archive.holdings().format}: replay reads parquet only"
        )
    for text in options.topics.split(","):
        check_filter(text.strip())
    if options.prefix:
        check_topic(options.prefix + "x")
    if options.token and not _TOKEN.fullmatch(options.token):
        raise ConfigError(
            f"--token {options.token!r}: accepted: letters, digits, . _ and -, "
            f"at most {REPLAY_TOKEN_LENGTH_MAX}"
        )
    return archive


# --- the plan ---------------------------------------------------------------------------------------


def _planned(
    archive: Archive, options: ReplayOptions, token: str, files: Iterable[ArchivedFile], done: int
) -> Plan:
    """As it was kept, and behind it what came since; kept before the first step of it."""
    fresh = Plan(options.address, options.topics, options.first_us, options.upto_us, options.prefix)
    plan = archive.read_own(_plan_name(token), Plan) or fresh
    for name in ("address", "topics", "first_us", "upto_us", "prefix"):
        if getattr(plan, name) != getattr(fresh, name):
            raise ConfigError(
                f"--token {token}: that replay has {name} {getattr(plan, name)!r}: "
                "give the same, or another token"
            )
    wanted = (
        file
        for file in files
        if file.last_us >= options.first_us and file.first_us < options.upto_us
    )
    extended = plan.extended(wanted, options.rate, done)
    if extended != plan:
        archive.write_own(_plan_name(token), extended)
    return extended


def _progress(archive: Archive, token: str) -> Progress:
    return archive.read_own(_progress_name(token), Progress) or Progress()


def _plan_name(token: str) -> str:
    return f"replays/{token}.plan.json"


def _progress_name(token: str) -> str:
    return f"replays/{token}.done.json"


def _rows_in(step: Step) -> int:
    return sum(piece.upto - piece.first for piece in step)


# --- a step -----------------------------------------------------------------------------------------


class ReplayItem(msgspec.Struct, frozen=True):
    where: str
    target: dict[str, str]
    token: str
    step: int
    topics: list[str]
    first_us: int
    upto_us: int
    prefix: str
    piece: Piece
    files: list[ArchivedFile]


class StagedPiece(msgspec.Struct, frozen=True):
    """What a task has staged."""

    place: int
    stage: bytes
    count: int
    hash: bytes


class _Publisher:
    """Publishes steps, and knows which files their messages are in."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ReplayOptions,
        token: str,
        archive: Archive,
        files: Files,
    ) -> None:
        self._spark = spark
        self._options = options
        self._token = token
        self._archive = archive
        self._files = files

    def publish(self, number: int, step: Step) -> int:
        """How many messages the step has."""
        try:
            return self._publish(number, step)
        except DriftFound:
            # A compaction may have replaced a file meanwhile: then it is no problem at all.
            now = by_stream(self._archive.live())
            if all(now.get(piece.stream) == self._files.get(piece.stream) for piece in step):
                raise
            self._files = now
            return self._publish(number, step)

    def _publish(self, number: int, step: Step) -> int:
        options = self._options
        items = [
            ReplayItem(
                self._archive.where,
                options.target,
                self._token,
                number,
                [part.strip() for part in options.topics.split(",")],
                options.first_us,
                options.upto_us,
                options.prefix,
                piece,
                [file for file in self._files.get(piece.stream, []) if _meets(file, piece)],
            )
            for piece in step
        ]
        with explained():
            results = tasks.run(self._spark, stage_piece, items, StagedPiece)
        found = sorted(results, key=lambda one: one.place)
        staged = [Staged(self._token, number, one.stage, one.count, one.hash) for one in found]
        commit(_destination(options.target), self._token, number, staged)
        return sum(one.count for one in found)


def _meets(file: ArchivedFile, piece: Piece) -> bool:
    return file.first < piece.upto and file.last >= piece.first


def _destination(target: dict[str, str]) -> Destination:
    return Destination(reach_of(target), Columns(COLUMNS))


def stage_piece(item: bytes) -> Iterator[StagedPiece]:
    """In a worker: the messages of a piece, by their offsets, to the node that will publish them."""
    from pyspark import TaskContext

    wanted = msgspec.json.decode(item, type=ReplayItem)
    table = _read(wanted)
    batches = iter(
        messages_of(table, wanted).to_batches(REPLAY_STAGE_ROWS) if table.num_rows else []
    )
    staged = stage(_destination(wanted.target), wanted.token, wanted.step, batches)
    context = TaskContext.get()
    place = context.partitionId() if context else 0
    yield StagedPiece(place, staged.stage, staged.count, staged.hash)


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
    times = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    mask = (offsets >= first) & (offsets < upto)
    mask &= (times >= wanted.first_us) & (times < wanted.upto_us)
    topics = batch.column("topic").dictionary_encode()
    taken = [any(match(name) for match in matchers) for name in topics.dictionary.to_pylist()]
    mask &= np.array(taken, np.bool_)[topics.indices.to_numpy()]
    return batch.filter(pa.array(mask))


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
