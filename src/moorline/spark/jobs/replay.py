"""Room: spark. `replay`: messages of an archive back into topics, once each, at a bounded rate.

A replay has a token and a plan, both kept in the archive: steps, each some ranges of streams. A step is
staged by tasks that read the files themselves, and published by one commit, fenced by (token, step). So a
replay that was interrupted goes on where it was, a step that is tried again publishes nothing, and a
replay that is over adds only what the archive got since.

A shard is one task of a step, its messages in the order of their offsets: the order of a key is kept.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from moorline.core.stream import Stream
from moorline.core.topic import Matcher, check_filter, check_topic
from moorline.errors import BadTopic, ConfigError, DriftFound
from moorline.spark.frames import HEADERS_TYPE
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import MAX_US, Archive, ArchivedFile
from moorline.spark.jobs.digests import batches_of, problem_of
from moorline.spark.jobs.watching import Seen, nobody
from moorline.spark.options import reach_of
from moorline.spark.rows import Columns
from moorline.spark.writer import Destination, Staged, commit, stage
from moorline.wire.segment import decode_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_ROWS = 100_000
"""Messages of one stream in a step: what a task holds and sorts at once."""

PIECE_BYTES = 64 * 1024 * 1024
"""The same in bytes of files, which are packed."""

STEP_PIECES = 8
"""Pieces of a step without a rate: as many tasks."""

STEP_S = 2.0
"""Seconds of a bounded rate that one step brings: a step costs about one to begin and to commit."""

_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,100}")

COLUMNS = ("topic", "key", "value", "headers", "ttl_s")

Piece = tuple[Stream, int, int]
"""Messages from the first offset to before the second of a stream."""


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

    def name(self) -> str:
        """The token, given or made of what the replay is: the same command is the same replay."""
        if self.token:
            return self.token
        what = (self.where, self.target, self.topics, self.first_us, self.upto_us, self.prefix)
        return f"replay-{xxhash.xxh3_64_hexdigest(msgspec.json.encode(what))}"


class Plan(msgspec.Struct):
    """The steps of a replay, and how many of them are published."""

    topics: str
    first_us: int
    upto_us: int
    prefix: str
    steps: list[list[Piece]] = []
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
    token = options.name()
    files = archive.live()
    plan = _planned(archive, options, token, files)
    began, messages, first = time.monotonic(), 0, plan.done
    for number in range(first, len(plan.steps)):
        seen(number, len(plan.steps))
        count = _step(spark, options, token, number, plan.steps[number], files)
        messages += count
        plan.done, plan.messages = number + 1, plan.messages + count
        archive.write_own(f"replays/{token}.json", plan)
        early_s = messages / options.rate - (time.monotonic() - began) if options.rate else 0.0
        if early_s > 0:
            pause(early_s)
    seen(len(plan.steps), len(plan.steps))
    return Replayed(
        token, messages, plan.messages, plan.done - first, round(time.monotonic() - began, 3)
    )


def opened(options: ReplayOptions) -> Archive:
    """The archive, if there is one that can be read; and if what is asked for can be."""
    archive = Archive(options.where)
    if archive.holdings().format != "parquet":
        raise ConfigError(f"the archive at {archive.where} is not Parquet: replay reads no other")
    for text in options.topics.split(","):
        check_filter(text.strip())
    if options.prefix:
        check_topic(options.prefix + "x")
    if options.token and not _TOKEN.fullmatch(options.token):
        raise ConfigError(f"--token {options.token!r}: accepted: letters, digits, . _ and -")
    return archive


# --- the plan ---------------------------------------------------------------------------------------


def _planned(
    archive: Archive, options: ReplayOptions, token: str, files: list[ArchivedFile]
) -> Plan:
    """As it was kept, and behind it what came since; kept before the first step of it."""
    fresh = Plan(options.topics, options.first_us, options.upto_us, options.prefix)
    kept = archive.read_own(f"replays/{token}.json")
    plan = msgspec.json.decode(kept, type=Plan) if kept else fresh
    for name in ("topics", "first_us", "upto_us", "prefix"):
        if getattr(plan, name) != getattr(fresh, name):
            raise ConfigError(
                f"--token {token}: that replay has {name} {getattr(plan, name)!r}: "
                "give the same, or another token"
            )
    wanted = [file for file in files if file.last_us >= options.first_us]
    wanted = [file for file in wanted if file.first_us < options.upto_us]
    plan.steps += steps_of(wanted, plan.steps, options.rate)
    archive.write_own(f"replays/{token}.json", plan)
    return plan


def steps_of(files: list[ArchivedFile], known: list[list[Piece]], rate: int) -> list[list[Piece]]:
    """What these files have beyond the steps that are known, the oldest messages first."""
    reached: dict[Stream, int] = {}
    for step in known:
        for stream, _, upto in step:
            reached[stream] = max(reached.get(stream, 0), upto)
    by_stream: dict[Stream, list[ArchivedFile]] = {}
    for file in files:
        by_stream.setdefault(file.stream, []).append(file)
    lines: dict[Any, list[Piece]] = {}
    rows_max = max(1, min(PIECE_ROWS, int(rate * STEP_S))) if rate else PIECE_ROWS
    for stream, some in sorted(by_stream.items()):
        size = sum(file.size_bytes for file in some) // max(1, sum(file.rows for file in some))
        rows = max(1, min(rows_max, PIECE_BYTES // max(1, size)))
        first = max(reached.get(stream, 0), min(file.first for file in some))
        end = max(file.last for file in some) + 1
        lines.setdefault(stream.line, []).extend(
            (stream, start, min(start + rows, end)) for start in range(first, end, rows)
        )
    return _dealt(list(lines.values()), rate)


def _dealt(lines: list[list[Piece]], rate: int) -> list[list[Piece]]:
    """Shards in turn, so that none is far behind; a shard's own pieces in their order."""
    rows_max = rate * STEP_S if rate else float("inf")
    steps: list[list[Piece]] = []
    step: list[Piece] = []
    rows = 0
    for turn in range(max((len(line) for line in lines), default=0)):
        for line in lines:
            if turn >= len(line):
                continue
            piece = line[turn]
            count = piece[2] - piece[1]
            is_next = any(piece[0].line == other.line for other, _, _ in step)
            if step and (len(step) >= STEP_PIECES or rows + count > rows_max or is_next):
                steps.append(step)
                step, rows = [], 0
            step.append(piece)
            rows += count
    return [*steps, step] if step else steps


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


def _step(
    spark: "SparkSession",
    options: ReplayOptions,
    token: str,
    number: int,
    pieces: list[Piece],
    files: list[ArchivedFile],
) -> int:
    items = [
        ReplayItem(
            options.where,
            options.target,
            token,
            number,
            [part.strip() for part in options.topics.split(",")],
            options.first_us,
            options.upto_us,
            options.prefix,
            piece,
            [file for file in files if file.stream == piece[0] and _meets(file, piece)],
        )
        for piece in pieces
    ]
    found = sorted(tasks.run(spark, stage_piece, items, StagedPiece), key=lambda one: one.place)
    staged = [Staged(token, number, one.stage, one.count, one.hash) for one in found]
    commit(_destination(options.target), token, number, staged)
    return sum(one.count for one in found)


def _meets(file: ArchivedFile, piece: Piece) -> bool:
    return file.first < piece[2] and file.last >= piece[1]


def _destination(target: dict[str, str]) -> Destination:
    return Destination(reach_of(target), Columns(COLUMNS))


def stage_piece(item: bytes) -> Iterator[StagedPiece]:
    """In a worker: the messages of a piece, by their offsets, to the node that will publish them."""
    from pyspark import TaskContext

    wanted = msgspec.json.decode(item, type=ReplayItem)
    table = _read(wanted)
    batches = iter(messages_of(table, wanted).to_batches(10_000) if table.num_rows else [])
    staged = stage(_destination(wanted.target), wanted.token, wanted.step, batches)
    context = TaskContext.get()
    place = context.partitionId() if context else 0
    yield StagedPiece(place, staged.stage, staged.count, staged.hash)


def _read(wanted: ReplayItem) -> pa.Table:
    archive = Archive(wanted.where)
    matchers = [Matcher(text) for text in wanted.topics]
    parts = []
    for file in wanted.files:
        try:
            parts += [_chosen(batch, wanted, matchers) for batch in batches_of(archive, file.path)]
        except (OSError, pa.ArrowException) as error:
            why = problem_of(archive, file) or f"cannot be read: {error}"
            raise DriftFound(
                f"{archive.uri(file.path)} {why}: `moor pipeline verify --repair` puts it right"
            ) from error
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
    seconds = table.column("ttl_s").to_numpy().astype(np.uint32).astype(np.int64)
    return pa.table(
        {
            "topic": topics,
            "key": table.column("key"),
            "value": table.column("value"),
            "headers": pa.array(decoded, HEADERS_TYPE).take(encoded.indices),
            "ttl_s": pa.array(seconds),
        }
    )
