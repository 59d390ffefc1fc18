"""Room: spark. How fast a task may write: by the rates of its principal, where it has any.

A node refuses what comes too fast (`OVER_QUOTA`) and says when to come again. Rows must stay in their order,
so a task with a rate sends one chunk at a time, none larger than a second's worth, and waits as it is told.
"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from moorline.core.access.quota import Quota
from moorline.errors import CallFailed, OverQuota
from moorline.limits import SPARK_CHUNK_BYTES, SPARK_PACE_MS_MAX
from moorline.wire.access import DescribeQuotas, QuotasDescribed
from moorline.wire.message import Answer, Message
from moorline.wire.staging import RowsStaged

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Reply = TypeVar("Reply", bound=Answer)


class Calling(Protocol):
    """A link to the node."""

    def call(self, make: Callable[[int], Message], reply: type[Reply]) -> Reply: ...


class Pace(msgspec.Struct, frozen=True):
    """What one chunk may have."""

    rows_max: int | None = None
    bytes_max: int = SPARK_CHUNK_BYTES
    is_bounded: bool = False

    def portions(self, batch: "RecordBatch") -> Iterator["RecordBatch"]:
        step = self.rows_max or batch.num_rows
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def pace_of(link: Calling) -> Pace:
    """Asked before the first rows: behind a chunk that is refused others are on their way already."""
    try:
        described = link.call(DescribeQuotas, QuotasDescribed)
    except CallFailed:
        return Pace()  # the catalog is away, for example: what is too fast is refused then
    bounds = {row.quota: row.bound for row in described.usage if row.bound is not None}
    rows_max = bounds.get(Quota.MESSAGES_PER_S.value)
    bytes_max = bounds.get(Quota.BYTES_PER_S.value)
    if rows_max is None and bytes_max is None:
        return Pace()
    if bytes_max is None:
        return Pace(rows_max, is_bounded=True)
    # The heads of a chunk count too.
    return Pace(rows_max, min(SPARK_CHUNK_BYTES, bytes_max * 7 // 8), is_bounded=True)


def stage_in_time(link: Calling, make: Callable[[int], Message]) -> None:
    """One chunk, when the rates allow it; the error that the node gave last if they do not for too long."""
    end = time.monotonic() + SPARK_PACE_MS_MAX / 1_000
    while True:
        try:
            link.call(make, RowsStaged)
        except OverQuota as error:
            if error.retry_after_ms is None or time.monotonic() > end:
                raise
            time.sleep(error.retry_after_ms / 1_000)
        else:
            return
