"""Room: spark. Patience of a job without an end: a node that went away is waited for, and said so.

A query of Spark's ends when its node is away for some seconds. Its place is in its checkpoint, so it is begun
again when the node answers; only a node that stays away for longer than the patience ends the job.
"""

import time
from collections.abc import Callable, Iterable

from moorline.errors import ConnectionLost, Untrusted
from moorline.limits import PIPELINE_PATIENCE_MS, PIPELINE_STEADY_MS
from moorline.spark.jobs.watching import LOOK_S, Stopping
from moorline.spark.node_link import Links
from moorline.spark.options import endpoint_of
from moorline.wire.stream_file import ClusterDescribed, DescribeCluster

Told = Callable[[str], None]
"""Hears, in words, what a job waits for."""


def silent(text: str) -> None:
    """For those who do not listen."""


class Patience:
    """How long it lasts. Pure: what the clock says comes in.

    It is counted from the first loss. A query that has run steadily since has made it new.
    """

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._since_ms: int | None = None

    def began(self, now_ms: int) -> None:
        """The query is begun, or begun again."""
        self._began_ms = now_ms

    def lost(self, now_ms: int) -> int:
        """The query lost its node: how many milliseconds are left to wait."""
        if self._since_ms is None or now_ms - self._began_ms >= PIPELINE_STEADY_MS:
            self._since_ms = now_ms
        return max(0, self._since_ms + PIPELINE_PATIENCE_MS - now_ms)


def wait_for_nodes(
    sources: Iterable[dict[str, str]],
    error: ConnectionLost,
    patience: Patience,
    told: Told,
    stopping: Stopping,
) -> None:
    """Returns when all of them answer, or when the job is to stop; raises `error` when the time is over.

    A certificate that cannot be verified stays as it is, however long it is waited for.
    """
    if isinstance(error, Untrusted):
        raise error
    sources = list(sources)
    left_ms = patience.lost(now_ms())
    end_ms = now_ms() + left_ms
    if left_ms:
        told(f"{error}: waiting for the node, up to {left_ms // 1_000} seconds")
    while True:
        # At least once, and a moment later: what a query meets may be over before we look.
        time.sleep(LOOK_S)
        if stopping():
            return
        if now_ms() >= end_ms:
            raise error
        if all(map(_answers, sources)):
            told("the node answers again: going on")
            patience.began(now_ms())
            return


def _answers(source: dict[str, str]) -> bool:
    if source.get("path"):
        return True
    endpoint = endpoint_of(source)
    links = Links(endpoint)
    try:
        links.run(links.ask((endpoint.address,), DescribeCluster, ClusterDescribed, 1))
    except Untrusted:
        raise
    except ConnectionLost:
        return False
    finally:
        links.close()
    return True


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
