"""Room: journal/streams. Picking the messages of a few topics out of a sealed stream by the lists that it has
of them (core/frames/topic_lists.py).

Everything is checked: the lists by their checks, each frame by its own, with the offset that it must
have. Where anything is not as it should be nothing is picked, and whoever asked reads everything from there.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.frame import HEAD, check_of
from moorline.core.frames.picked import Picked, picked_of
from moorline.core.frames.topic_lists import ReadAt, candidates, read_table
from moorline.journal.streams.segment import SEGMENT_HEAD
from moorline.journal.streams.segment_index import DENSE_BYTES
from moorline.journal.streams.source import SegmentFile
from moorline.limits import (
    FRAME_BYTES_MAX,
    PICK_MESSAGES_MAX,
    PICK_NEAR_BYTES,
    PICK_SHARE_MAX,
    PICK_TABLES_BYTES_MAX,
)

_OFFSET_BYTES = 8


class Wish(NamedTuple):
    """What a reader wants of a stream: messages before `upto` that a filter takes, at most so many."""

    filters: tuple[str, ...]
    upto: int
    messages_max: int = PICK_MESSAGES_MAX


def few_candidates(file: SegmentFile, read_at: ReadAt, filters: Sequence[str]) -> Numbers | None:
    """The offsets of a sealed stream that may match; None if they are not known, or are too many to pick."""
    head = file.head
    with contextlib.suppress(OSError):
        table = read_table(read_at, head.seed, head.first, file.end)
        if table is None:
            return None
        count = sum(listing.messages for listing in table.wanted(filters))
        if count <= PICK_SHARE_MAX * (file.end - head.first):
            return candidates(table, read_at, filters)
    return None


def pick(
    file: SegmentFile, offsets: Numbers, offset: int, upto: int, count_max: int, bytes_max: int
) -> Picked | None:
    """The candidates from an offset on to before another, at most so many, within `bytes_max` or else one.

    None where the next of them cannot be picked: it is damaged, or its place is not known.
    """
    start, stop = np.searchsorted(offsets, [offset, upto]).tolist()
    wanted = offsets[start : min(stop, start + min(count_max, PICK_MESSAGES_MAX))]
    frames: list[bytes] = []
    size = 0
    for found in _frames(file, wanted, bytes_max):
        # What is too much is read another time; the first one goes in any case.
        if frames and size + len(found) > bytes_max:
            break
        frames.append(found)
        size += len(found)
    done = start + len(frames)
    if start < stop and not frames:
        return None
    reached = int(offsets[done]) if done < stop else upto
    positions = np.cumsum([0, *map(len, frames)])[:-1].astype(np.int64)
    return picked_of(offset, reached, b"".join(frames), positions)


def _frames(file: SegmentFile, wanted: Numbers, bytes_max: int) -> "list[bytes]":
    """The frames of these messages, up to the first that is not whole."""
    found = _places(file, wanted)
    places, ends, offsets = found[0].tolist(), found[1].tolist(), wanted.tolist()
    frames: list[bytes] = []
    at, total, seed = 0, 0, file.head.seed
    while at < len(places) and total < bytes_max:
        # Those that are near each other, with what is between them, in one read.
        begin, stop = places[at], at + 1
        while (
            stop < len(places)
            and places[stop] - ends[stop - 1] <= PICK_NEAR_BYTES
            and ends[stop] - begin <= bytes_max
        ):
            stop += 1
        data = file.read_at(begin, ends[stop - 1] - begin)
        for number in range(at, stop):
            frame = data[places[number] - begin : ends[number] - begin]
            if not _is_whole(frame, offsets[number], seed):
                return frames
            frames.append(frame)
            total += len(frame)
        at = stop
    return frames


def _places(file: SegmentFile, wanted: Numbers) -> tuple[Numbers, Numbers]:
    """Where the frames of these messages begin and end, as far as the dense index says so."""
    numbers = wanted - file.head.first
    count = file.end - file.head.first
    found = np.zeros((len(numbers), 2), np.int64)
    at = 0
    while at < len(numbers):
        first = int(numbers[at])
        # Entries that stand near each other are read together.
        stop = int(np.searchsorted(numbers, first + PICK_NEAR_BYTES // DENSE_BYTES, "left"))
        stop = max(stop, at + 1)
        last = int(numbers[stop - 1])
        entries = np.frombuffer(file.dense(first, last - first + 2), "<i8")
        if last == count - 1:
            entries = np.append(entries, file.size_bytes)
        if len(entries) != last - first + 2:
            break
        inside = numbers[at:stop] - first
        found[at:stop, 0], found[at:stop, 1] = entries[inside], entries[inside + 1]
        at = stop
    places, ends = found[:at, 0], found[:at, 1]
    # A neighbour that cannot be read has no place: then this one is read the careful way.
    sizes = ends - places
    bad = (places < SEGMENT_HEAD.size) | (sizes <= HEAD.size) | (sizes > FRAME_BYTES_MAX)
    bad |= ends > file.size_bytes
    upto = int(np.argmax(bad)) if bad.any() else at
    return places[:upto], ends[:upto]


def _is_whole(frame: bytes, offset: int, seed: int) -> bool:
    if len(frame) < HEAD.size + _OFFSET_BYTES:
        return False
    length, check = HEAD.unpack_from(frame)
    content = frame[HEAD.size :]
    return (
        len(content) == length
        and int.from_bytes(content[:_OFFSET_BYTES], "little") == offset
        and check_of(content, seed) == check
    )


class KnownCandidates:
    """What readers of sealed streams may want, remembered while they go on: by stream and filters.

    Sealed streams change no more, so nothing here grows old. Used in threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, tuple[str, ...]], Numbers | None] = OrderedDict()
        self._bytes = 0

    def of(self, file: SegmentFile, read_at: ReadAt, filters: Sequence[str]) -> Numbers | None:
        """As `few_candidates`."""
        # The seed is drawn for each segment.
        key = file.head.seed, tuple(filters)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        found = few_candidates(file, read_at, filters)
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._bytes += _weight(key, found)
            while self._bytes > PICK_TABLES_BYTES_MAX and len(self._known) > 1:
                self._bytes -= _weight(*self._known.popitem(last=False))
        return found


def _weight(key: tuple[int, tuple[str, ...]], found: Numbers | None) -> int:
    return 256 + sum(map(len, key[1])) + (found.nbytes if found is not None else 0)
