"""Room: spark. How far a query is behind what is stored: in its progress, and by a listener.

A Python source has no metrics of its own, but what it says of its latest offset is in the progress of every
batch as it is. So `sources[].latestOffset.behind` has the least, the greatest and the average of what is
left in a shard behind the batch, and how many messages that is in all.

    lag = moorline.spark.watch_lag(spark)
    lag.of(query)                           # Lag(least=0, average=12.5, greatest=50, messages=100, shards=8)
"""

import json
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from moorline.limits import SPARK_QUERIES_WATCHED_MAX

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BEHIND = "behind"
"""Below this name it stands in the latest offset of a source."""


class Lag(NamedTuple):
    """Messages that are stored and not read yet: of a shard, and of all of them."""

    least: int
    average: float
    greatest: int
    messages: int
    shards: int

    def told(self) -> dict[str, dict[str, int | float]]:
        return {BEHIND: self._asdict()}


NOTHING = Lag(0, 0.0, 0, 0, 0)

Heard = Callable[[str, Lag], None]
"""Of a query, by its name or else its id: how far it is behind now."""


def lag_of(waiting: Iterable[int]) -> Lag:
    """From what waits in each shard."""
    counts = [max(0, count) for count in waiting]
    if not counts:
        return NOTHING
    total = sum(counts)
    return Lag(min(counts), total / len(counts), max(counts), total, len(counts))


def lag_in(latest_offset: object) -> Lag | None:
    """What a source of ours said in a progress; None of any other source."""
    try:
        told = json.loads(latest_offset) if isinstance(latest_offset, str) else latest_offset
    except ValueError:
        return None
    behind = told.get(BEHIND) if isinstance(told, dict) else None
    return Lag(**behind) if isinstance(behind, dict) else None


class LagListener(StreamingQueryListener):
    """The last that each query said; Spark calls it from a thread of its own."""

    def __init__(self, heard: Heard | None = None) -> None:
        self._heard = heard
        self._lock = threading.Lock()
        self._known: dict[str, Lag] = {}

    def of(self, query: "StreamingQuery | str") -> Lag | None:
        """By the query or its id; None before its first batch. A query of several sources has the sum."""
        with self._lock:
            return self._known.get(query if isinstance(query, str) else str(query.id))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        found = [lag for one in progress.sources if (lag := lag_in(one.latestOffset)) is not None]
        if not found:
            return
        lag = _together(found)
        with self._lock:
            self._known.pop(str(progress.id), None)
            self._known[str(progress.id)] = lag
            if len(self._known) > SPARK_QUERIES_WATCHED_MAX:
                del self._known[next(iter(self._known))]
        if self._heard is not None:
            self._heard(progress.name or str(progress.id), lag)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing new was there: what was said last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """What it said last can still be asked for."""


def _together(found: list[Lag]) -> Lag:
    messages, shards = sum(one.messages for one in found), sum(one.shards for one in found)
    return Lag(
        min(one.least for one in found),
        messages / shards if shards else 0.0,
        max(one.greatest for one in found),
        messages,
        shards,
    )
