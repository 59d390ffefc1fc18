"""Room: spark. What a job is doing now, from Spark's own counts: tasks of an action, rows of a query."""

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Value = TypeVar("Value")

Seen = Callable[[int, int], None]
"""Hears how many are done, and of how many; 0 where nobody knows."""

LOOK_S = 0.2
"""Time between two looks: a person sees no more, and Spark is asked no oftener."""


def nobody(done: int, total: int) -> None:
    """For those who do not look."""


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
            done = total = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
                done += sum(stage.numCompletedTasks for stage in stages if stage)
                total += sum(stage.numTasks for stage in stages if stage)
            seen(done, total)

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


def wait(
    query: "StreamingQuery",
    seen: Seen,
    also: Callable[[], None] = lambda: None,
    heard: Heard = lambda _batch, _start, _end, _rows: None,
    count: Callable[[Any], int] | None = None,
) -> int:
    """Until the query ends, fails or is interrupted; the rows that it read. `also` is called often.

    `count` says how many a batch has, where Spark does not see them.
    """
    done: dict[int, int] = {}
    is_over = False
    while not is_over:
        try:
            is_over = bool(query.awaitTermination(LOOK_S))  # type: ignore[arg-type]  # a fraction
            also()
        except KeyboardInterrupt:
            query.stop()
            is_over = True
        behind = 0
        for progress in query.recentProgress:
            number, rows = int(progress["batchId"]), (count or rows_of)(progress)
            # After its last batch a query may report that number again, without rows.
            done[number] = max(rows, done.get(number, 0))
            behind = lag(progress)
            for source in progress["sources"] if rows else []:
                heard(number, _offsets(source["startOffset"]), _offsets(source["endOffset"]), rows)
        seen(sum(done.values()), sum(done.values()) + behind)
    return sum(done.values())


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
    import msgspec

    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
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
