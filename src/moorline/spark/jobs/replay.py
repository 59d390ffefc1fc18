"""Room: spark. `replay`: messages of an archive back into topics, once each, at a bounded rate.

A replay has a token and a plan, both kept in the archive: steps, each some ranges of streams. A step is
staged by tasks that read the files themselves, and published by one commit, fenced by (token, step). So a
replay that was interrupted goes on where it was, a step that is tried again publishes nothing, and a
replay that is over adds only what the archive got since.

A shard is one task of a step, its messages in the order of their offsets: the order of a key is kept. A
replay is history and not state: the mark of a retained message is left out, or the last word of a topic would
be one of long ago for everybody who subscribes from then on.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import xxhash

from moorline.core.topic import check_filter, check_topic
from moorline.errors import ConfigError
from moorline.limits import REPLAY_TOKEN_LENGTH_MAX
from moorline.spark.jobs.archive_files import Archive
from moorline.spark.jobs.manifest import MAX_US, ArchivedFile
from moorline.spark.jobs.replay_choice import check_chosen
from moorline.spark.jobs.replay_pace import Schedule, steps_ahead
from moorline.spark.jobs.replay_plan import Plan, Step
from moorline.spark.jobs.replay_steps import Numbered, Stager, destination_of
from moorline.spark.jobs.watching import Seen, nobody
from moorline.spark.options import endpoint_of
from moorline.spark.writer import Staged, abort, commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = re.compile(rf"[A-Za-z0-9._-]{{1,{REPLAY_TOKEN_LENGTH_MAX}}}")


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
        return endpoint_of(self.target).address

    @property
    def filters(self) -> list[str]:
        return [part.strip() for part in self.topics.split(",")]

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
    rate_kept: float | None = None
    """Messages a second, between the first step and the last; None where there was one step, or no rate."""


def replay(
    spark: "SparkSession",
    options: ReplayOptions,
    seen: Seen = nobody,
    pause: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> Replayed:
    archive = opened(options)
    token = options.name(archive.holdings().id or archive.of_spark)
    progress = _progress(archive, token)
    live = archive.live()
    if archive.read_own(_plan_name(token), Plan) is None:
        check_chosen(spark, archive, options, live)
    plan = _planned(archive, options, token, live, progress.done)
    began_s, first = now_s(), progress
    total = sum(_rows_in(step) for step in plan.steps())
    passed = sum(_rows_in(step) for step in islice(plan.steps(), first.done))
    steps = islice(enumerate(plan.steps()), first.done, None)
    schedule = Schedule(options.rate)
    destination = destination_of(options.target)
    with contextlib.closing(Ahead(Stager(spark, options, token, archive), steps, options)) as ahead:
        for number, step, staged in ahead:
            seen(passed, total)
            if (early_s := schedule.wait_s(now_s())) > 0:
                pause(early_s)
            commit(destination, token, number, staged)
            count = sum(one.count for one in staged)
            schedule.published(count, now_s())
            progress = Progress(number + 1, progress.messages + count)
            archive.write_own(_progress_name(token), progress)
            passed += _rows_in(step)
    seen(total, total)
    return Replayed(
        token,
        progress.messages - first.messages,
        progress.messages,
        progress.done - first.done,
        round(now_s() - began_s, 3),
        schedule.rate_kept,
    )


class Ahead:
    """Steps that are staged, in their order: while one is published, the next are being staged."""

    def __init__(self, stager: Stager, steps: Iterator[Numbered], options: ReplayOptions) -> None:
        self._stager = stager
        self._steps = steps
        self._options = options
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moorline-replay")
        self._staged: dict[int, list[Staged]] = {}
        self._count = 0
        self._messages = 0

    def __iter__(self) -> Iterator[tuple[int, Step, list[Staged]]]:
        group, work = self._begun()
        while group:
            self._staged = work.result()
            self._count += len(group)
            self._messages += sum(one.count for some in self._staged.values() for one in some)
            following, work = self._begun()
            for number, step in group:
                yield number, step, self._staged[number]
                del self._staged[number]
            group = following

    def _begun(self) -> tuple[list[Numbered], "Future[dict[int, list[Staged]]]"]:
        count = steps_ahead(self._options.rate, self._messages, self._count)
        group = list(islice(self._steps, count))
        return group, self._thread.submit(self._stager.stage, group)

    def close(self) -> None:
        """What is staged and not wanted any more goes; what a task is still staging goes after a day."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        for number, staged in self._staged.items():
            abort(destination_of(self._options.target), staged[0].query, number, staged)


def opened(options: ReplayOptions) -> Archive:
    """The archive, if there is one that can be read; and if what is asked for can be."""
    archive = Archive(options.where)
    if archive.holdings().format != "parquet":
        raise ConfigError(
            f"the archive at {archive.where} is {archive.holdings().format}: replay reads parquet only"
        )
    for text in options.filters:
        check_filter(text)
    if options.first_us >= options.upto_us:
        raise ConfigError(
            "--from is not before --until: no message can be between them; nothing was published"
        )
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
