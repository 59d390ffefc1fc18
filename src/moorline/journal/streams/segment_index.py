"""Room: journal/streams. Where messages are in a segment: a sparse index, and a dense one once it is sealed.

    .idx     position u64 · offset u64 · time_us u64    of every message whose offset divides by 128
    .dense   position u64                               of every message; 0 if it is not readable

Neither is relied upon: whoever follows an entry checks that the frame there is the one it looks for.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.fields import Positions, times_of
from moorline.journal.disk import Disk
from moorline.journal.streams.segment import SEGMENT_HEAD, Piece, SegmentGap
from moorline.limits import STREAM_INDEX_EVERY

ENTRY_NUMBERS = 3
"""An entry of the sparse index is a position, an offset and a time."""

ENTRY_BYTES = 8 * ENTRY_NUMBERS
DENSE_BYTES = 8

Words = npt.NDArray[np.uint64]
NO_ENTRIES: Words = np.empty((0, ENTRY_NUMBERS), "<u8")


class IndexEntry(NamedTuple):
    """Message `offset` begins at `position`; `is_sure` if that was seen and not only written down."""

    offset: int
    position: int
    is_sure: bool


class SparseIndex:
    """Grows with its segment. Readers in threads may look while it does: `offsets` grows last."""

    __slots__ = ("is_sure", "offsets", "positions", "times_us")

    def __init__(self, *, is_sure: bool = True) -> None:
        self.positions: list[int] = []
        self.offsets: list[int] = []
        self.times_us: list[int] = []
        self.is_sure = is_sure

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, entries: Words) -> None:
        self.positions.extend(entries[:, 0].tolist())
        self.times_us.extend(entries[:, 2].tolist())
        self.offsets.extend(entries[:, 1].tolist())

    def entry_of(self, offset: int) -> IndexEntry | None:
        """The last entry that is not behind that message."""
        number = bisect_right(self.offsets, offset) - 1
        if number < 0:
            return None
        return IndexEntry(self.offsets[number], self.positions[number], self.is_sure)

    def before_time(self, time_us: int) -> IndexEntry | None:
        """The last entry that is older than that; only messages behind it can be the first that is not."""
        number = bisect_left(self.times_us, time_us, 0, len(self.offsets)) - 1
        if number < 0:
            return None
        return IndexEntry(self.offsets[number], self.positions[number], self.is_sure)

    def entries(self) -> bytes:
        count = len(self.offsets)
        columns = [self.positions[:count], self.offsets[:count], self.times_us[:count]]
        table = np.array(columns, np.uint64).T
        return np.ascontiguousarray(table).tobytes()

    @staticmethod
    def loaded(data: bytes, first: int, upto: int, limit: int) -> "SparseIndex | None":
        """The entries of messages `first` to before `upto`, if they can be those: else None."""
        count = len(data) // ENTRY_BYTES * ENTRY_NUMBERS
        table = np.frombuffer(data, "<u8", count).reshape(-1, ENTRY_NUMBERS)
        table = table[: int(np.searchsorted(table[:, 1], upto))] if upto else table[:0]
        expected = np.arange(first + -first % STREAM_INDEX_EVERY, upto, STREAM_INDEX_EVERY)
        positions = table[:, 0].astype(np.int64)
        times = table[:, 2].astype(np.int64)
        if (
            len(table) != len(expected)
            or not np.array_equal(table[:, 1].astype(np.int64), expected)
            or np.any(np.diff(positions) <= 0)
            or np.any(np.diff(times) < 0)
            or (len(table) and (positions.min() < SEGMENT_HEAD.size or positions.max() >= limit))
        ):
            return None
        index = SparseIndex(is_sure=False)
        index.add(table)
        return index


def entries_of(first: int, position: int, data: bytes, positions: Positions) -> Words:
    """The sparse entries of frames that begin with message `first` at `position` of the segment."""
    if -first % STREAM_INDEX_EVERY >= len(positions):
        return NO_ENTRIES
    chosen = positions[-first % STREAM_INDEX_EVERY :: STREAM_INDEX_EVERY].astype(np.int64)
    entries = np.empty((len(chosen), ENTRY_NUMBERS), "<u8")
    if len(chosen):
        start = first + -first % STREAM_INDEX_EVERY
        entries[:, 0] = chosen + position
        entries[:, 1] = np.arange(len(chosen)) * STREAM_INDEX_EVERY + start
        entries[:, 2] = times_of(data, chosen)
    return entries


class IndexBuild:
    """Both indexes of a segment, from a walk over it."""

    def __init__(self, first: int) -> None:
        self.sparse = SparseIndex()
        self._first = first
        self._parts: list[Words] = []
        self._upto = first

    def add(self, piece: Piece) -> None:
        self._parts.append(piece.positions.astype("<u8") + np.uint64(piece.position))
        self._upto = piece.upto
        self.sparse.add(entries_of(piece.first, piece.position, piece.data, piece.positions))

    def skip(self, gap: SegmentGap) -> None:
        self._parts.append(np.zeros(gap.upto - gap.first, "<u8"))
        self._upto = gap.upto

    def dense(self, end: int) -> bytes:
        self._parts.append(np.zeros(end - self._upto, "<u8"))
        return b"".join(part.tobytes() for part in self._parts)


def dense_positions(disk: Disk, path: str, number: int, wanted: int, count: int) -> Numbers:
    """Where frame `number` of `count` begins, and the next ones, as many as are wanted and there are; nothing
    if the index does not say."""
    try:
        file = disk.open(path, create=False)
    except OSError:
        return np.array([], np.int64)  # it can be made anew, and there are other ways to the frame
    try:
        if file.size() != count * DENSE_BYTES:
            return np.array([], np.int64)
        data = file.read_at(number * DENSE_BYTES, min(wanted, count - number) * DENSE_BYTES)
    finally:
        file.close()
    return np.frombuffer(data, "<i8", len(data) // DENSE_BYTES)
