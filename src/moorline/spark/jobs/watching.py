"""Room: spark. What a job is doing now, from Spark's own counts: tasks of an action, rows of a query."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from moorline.limits import JOB_LOOK_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Value = TypeVar("Value")

Seen = Callable[[int, int], None]
"""Hears how many are done, and of how many; 0 where nobody knows."""

Stopping = Callable[[], bool]
"""Whether somebody wants a job without an end to end."""

LOOK_S = JOB_LOOK_MS / 1_000


def nobody(done: int, total: int) -> None:
    """For those who do not look."""


def never() -> bool:
    """For jobs that end by themselves."""
    return False


def watched(spark: "SparkSession", action: Callable[[], Value], seen: Seen) -> Value:
    """Does it, while `seen` hears of its tasks. Spark Connect does not count them for us."""
    context = _context(spark)
    if seen is nobody or context is None:
        return action()
    group = f"moorline-{uuid.uuid4().hex}"
    over = threading.Event()

    def look() -> None:
        tracker = context.statusTracker()
        while not over.wait(LOOK_S):
            seen(*_tasks(tracker, tracker.getJobIdsForGroup(group)))

    looking = threading.Thread(target=look, daemon=True)
    context.setJobGroup(group, "moor pipeline")
    looking.start()
    try:
        return action()
    finally:
        over.set()
        looking.join()
        context.setLocalProperty("spark.jobGroup.id", None)


def rows_of(progress: Any) -> int:
    """Input rows of one micro-batch, whatever kind of progress it is."""
    return int(progress["numInputRows"] or 0)


Heard = Callable[[int, dict[str, int], dict[str, int], int], None]
"""Hears of every batch: its number, where it began and ended, and its rows."""


Ahead = Callable[[int, int], tuple[int, int]]
"""Hears how many are done, and how many wait behind the last batch that is over. Says of these how many the
running batch has done, and how many there are."""


def share_of(spark: "SparkSession", group: str) -> float:
    """Which part of the tasks of a group's running jobs is over; 0 where Spark does not tell."""
    context = _context(spark)
    if context is None:
        return 0.0
    tracker = context.statusTracker()
    running = set(tracker.getActiveJobsIds())
    done, total = _tasks(
        tracker, [job for job in tracker.getJobIdsForGroup(group) if job in running]
    )
    return done / total if total else 0.0


def _tasks(tracker: Any, jobs: Iterable[int]) -> tuple[int, int]:
    """Tasks that are over, and all of them."""
    done = total = 0
    for job in jobs:
        info = tracker.getJobInfo(job)
        stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
        done += sum(stage.numCompletedTasks for stage in stages if stage)
        total += sum(stage.numTasks for stage in stages if stage)
    return done, total


def wait(
    query: "StreamingQuery",
    seen: Seen,
    also: Callable[[], None] = lambda: None,
    heard: Heard = lambda _batch, _start, _end, _rows: None,
    count: Callable[[Any], int] | None = None,
    stopping: Stopping = never,
    ahead: Ahead = lambda _done, behind: (0, behind),
) -> int:
    """Until the query ends, fails or is to stop; the rows that it read. `also` is called often.

    `count` says how many a batch has, where Spark does not see them. An interrupt stops the query first.
    """
    done: dict[int, int] = {}
    shown = 0
    is_over = False
    try:
        while not is_over:
            if stopping():
                query.stop()
                is_over = True
            else:
                is_over = bool(query.awaitTermination(LOOK_S))  # type: ignore[arg-type]  # a fraction
                also()
            behind = _look(query, done, heard, count or rows_of)
            total = sum(done.values())
            running, left = (0, behind) if is_over else ahead(total, behind)
            # Between the last task of a batch and Spark's word of it nothing is running: a bar stays.
            shown = max(shown, total + running)
            seen(shown, max(shown, total + left))
    except BaseException:
        # Also where `also` fails: nobody would know of a query that goes on alone. What failed first is told.
        with contextlib.suppress(Exception):
            query.stop()
        raise
    return sum(done.values())


def _look(
    query: "StreamingQuery",
    done: dict[int, int],
    heard: Heard,
    count: Callable[[Any], int],
) -> int:
    """Takes in what Spark tells of the batches that are over; how many messages wait behind the last."""
    behind = 0
    for progress in query.recentProgress:
        number, rows = int(progress["batchId"]), count(progress)
        # After its last batch a query may report that number again, without rows.
        done[number] = max(rows, done.get(number, 0))
        behind = lag(progress)
        for source in progress["sources"] if rows else []:
            heard(number, _offsets(source["startOffset"]), _offsets(source["endOffset"]), rows)
    return behind


def moved(progress: Any) -> int:
    """Messages between the places where a batch began and ended."""
    total = 0
    for source in progress["sources"]:
        start, end = _offsets(source["startOffset"]), _offsets(source["endOffset"])
        total += sum(upto - start.get(shard, 0) for shard, upto in end.items())
    return total


def lag(progress: Any) -> int:
    """Messages that are stored and not read yet: from the ends that the source reports."""
    behind = 0
    for source in progress["sources"]:
        ends, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        behind += sum(max(0, end - ends.get(shard, 0)) for shard, end in latest.items())
    return behind


def _offsets(value: Any) -> dict[str, int]:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
    if not isinstance(value, dict):
        return {}
    return {shard: end for shard, end in value.items() if isinstance(end, int)}


def _context(spark: "SparkSession") -> Any:
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except (PySparkException, AttributeError):
        return None
