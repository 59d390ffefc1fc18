"""Room: journal/streams. Reading the log of small commits again: its bytes go to where they belong.

    apply_logs(disk, store)          # a start, before it looks at anything else
    patches_of(disk)                 # who only reads: what the segments lack, and where

What is written over is compared first: a segment that holds whole frames which are others than those of the
log is left as it is. Where a part of a log has no place, or a batch of it is damaged, the log is set aside as
it was, named and counted; a log that is all in the segments, and these synced, is removed. Doing it twice
does nothing more, so a crash may come anywhere.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xxhash

from moorline.core.frames.byte_columns import words_at
from moorline.core.frames.frame import HEAD
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, DiskFile, read_all
from moorline.journal.streams.generation import SEGMENT
from moorline.journal.streams.layout import folder_of, path_of
from moorline.journal.streams.sealing import true_head
from moorline.journal.streams.segment import SegmentHead, read_head, whole_frames
from moorline.journal.streams.stream_log import (
    BATCH,
    CHECK,
    FOLDER,
    LOG_HEAD,
    MAGIC,
    PART,
    SUFFIX,
    VERSION,
    LogHead,
)
from moorline.limits import STREAM_WALK_BYTES

Segment = tuple[int, int]
"""Shard and generation."""


class Logged(NamedTuple):
    """Frames that belong into a segment."""

    segment: Segment
    seed: int
    first: int
    position: int
    data: bytes


class LogReading(NamedTuple):
    """A log as it was found; no head if that is damaged, or of a version that is not known."""

    head: LogHead | None
    parts: list[Logged]
    bad_batches: int
    """With whole ones behind them: the end of a log is what a crash left."""


class Patch(NamedTuple):
    """Bytes that a segment has not, or not as they should be."""

    position: int
    data: bytes


class LogProblem(NamedTuple):
    """What a log says that could not be done."""

    path: str
    segment: Segment
    text: str


def logs_of(disk: Disk) -> list[str]:
    """The paths of all logs, the oldest first."""
    if not disk.exists(FOLDER):
        return []
    return [f"{FOLDER}/{name}" for name in disk.list_folder(FOLDER) if name.endswith(SUFFIX)]


def number_of(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(SUFFIX)
    return int(stem) if stem.isdecimal() else 0


# --- the bytes ------------------------------------------------------------------------------------


def read_log(data: bytes) -> LogReading:
    head = _head_of(data)
    if head is None:
        return LogReading(None, [], 0)
    parts: list[Logged] = []
    position, number, bad = LOG_HEAD.size, 0, 0
    while True:
        end = _whole_batch(data, position, head.seed, number)
        if end:
            parts += _parts_of(data, position + CHECK.size + BATCH.size, end)
            position, number = end, number + 1
            continue
        found = _next_batch(data, position, head.seed, number)
        if found is None:
            return LogReading(head, parts, bad)
        bad += found[1] - number
        position, number = found


def _head_of(data: bytes) -> LogHead | None:
    if len(data) < LOG_HEAD.size:
        return None
    magic, version, number, seed, store, check = LOG_HEAD.unpack_from(data)
    is_whole = check == xxhash.xxh3_64_intdigest(data[: LOG_HEAD.size - CHECK.size])
    is_known = (magic, version) == (MAGIC, VERSION)
    return LogHead(number, seed, store) if is_whole and is_known else None


def _whole_batch(data: bytes, position: int, seed: int, number: int) -> int:
    """Where the batch of that number ends which begins there; 0 if it is not whole, or another one."""
    behind = position + CHECK.size
    if behind + BATCH.size > len(data):
        return 0
    length, _, found = BATCH.unpack_from(data, behind)
    end = behind + BATCH.size + length
    if found != number or end > len(data) or not length:
        return 0
    (check,) = CHECK.unpack_from(data, position)
    is_whole = xxhash.xxh3_64_intdigest(memoryview(data)[behind:end], seed) == check
    return int(end) if is_whole else 0


def _next_batch(data: bytes, position: int, seed: int, number: int) -> tuple[int, int] | None:
    """Where a whole batch begins behind a bad one, and its number; None if there is none."""
    last = len(data) - CHECK.size - BATCH.size
    if position >= last or not any(memoryview(data)[position:]):
        return None
    lengths = words_at(data, "<u4")
    numbers = words_at(data, "<u8")
    places = np.arange(position + 1, last + 1)
    behind = places + CHECK.size
    ends = behind + BATCH.size + lengths[behind].astype(np.int64)
    found = numbers[behind + 8]
    fits = (ends <= len(data)) & (found > number) & (found - np.uint64(number) < len(data))
    for place in places[fits].tolist():
        (one,) = (int(numbers[place + CHECK.size + 8]),)
        if _whole_batch(data, place, seed, one):
            return place, one
    return None


def _parts_of(data: bytes, position: int, end: int) -> Iterator[Logged]:
    while position < end:
        shard, generation, seed, first, at, length, _ = PART.unpack_from(data, position)
        position += PART.size
        yield Logged((shard, generation), seed, first, at, data[position : position + length])
        position += length


# --- a start --------------------------------------------------------------------------------------


class Applied(NamedTuple):
    """What a start did with the logs."""

    problems: list[LogProblem]
    aside: list[str]
    """Logs that are to leave the way, and not to be removed."""
    number: int
    """The highest number of a log: the next one is behind it."""


def apply_logs(disk: Disk, store: bytes, dropped: dict[int, set[int]]) -> Applied:
    """Brings what the logs have into the segments, syncs these, and removes the logs that are done.

    `dropped` are the generations of each shard that retention took.
    """
    problems: list[LogProblem] = []
    aside: list[str] = []
    paths = logs_of(disk)
    _remove_unfinished(disk)
    for path in paths:
        found = _apply(disk, path, store, dropped)
        problems += found
        if found:
            aside.append(path)
        elif disk.exists(path):
            disk.remove(path)
    if paths:
        disk.sync_folder(FOLDER)
    return Applied(problems, aside, max(map(number_of, paths), default=0))


def _remove_unfinished(disk: Disk) -> None:
    """What a crash left of a log that was being made: nothing was ever written to it."""
    if disk.exists(FOLDER):
        for name in disk.list_folder(FOLDER):
            if name.endswith(SUFFIX + TEMPORARY_SUFFIX):
                disk.remove(f"{FOLDER}/{name}")


def _apply(disk: Disk, path: str, store: bytes, dropped: dict[int, set[int]]) -> list[LogProblem]:
    data = read_all(disk, path)
    if not data and not disk.exists(path):
        return []  # a node that runs was faster than who checks its folder: all is in its place
    reading = read_log(data)
    nowhere = (0, 0)
    if reading.head is None:
        return [LogProblem(path, nowhere, "has a damaged head, or is of a newer Moorline")]
    if reading.head.store != store:
        return [LogProblem(path, nowhere, "is of another node")]
    problems = []
    if reading.bad_batches:
        text = f"has {reading.bad_batches} damaged batches: what they held may be in the segments"
        problems.append(LogProblem(path, nowhere, text))
    for segment, parts in _by_segment(reading.parts).items():
        shard, generation = segment
        if generation in dropped.get(shard, ()):
            continue
        text = _apply_to(disk, segment, parts)
        if text:
            problems.append(LogProblem(path, segment, text))
    return problems


def _by_segment(parts: list[Logged]) -> dict[Segment, list[Logged]]:
    found: dict[Segment, list[Logged]] = {}
    for part in parts:
        found.setdefault(part.segment, []).append(part)
    return found


def _apply_to(disk: Disk, segment: Segment, parts: list[Logged]) -> str:
    """What could not be done with them; empty if all is in the segment, and it is synced."""
    path = path_of(folder_of(segment[0]), segment[1])
    try:
        file = disk.open(path + SEGMENT, create=False)
    except FileNotFoundError:
        return f"has messages of {path}{SEGMENT}, which is gone"
    # A handle that has written in place appends no more.
    inside = disk.open(path + SEGMENT, create=False)
    try:
        head = true_head(disk, path, file, SegmentHead(*segment, 0, 0, 0))
        if head is None or any(part.seed != head.seed for part in parts):
            return f"has messages of another {path}{SEGMENT}"
        text = ""
        for part in parts:
            text = _put(file, inside, path, part) or text
        # What was found may have been only in the system's memory; the log is not there any more to tell.
        file.sync()
        return text
    finally:
        file.close()
        inside.close()


def _put(file: DiskFile, inside: DiskFile, path: str, part: Logged) -> str:
    size = file.size()
    there = file.read_at(part.position, len(part.data))
    if there == part.data:
        return ""
    if _is_another(part, there):
        return f"has other messages than {path}{SEGMENT} from {part.first} on"
    text = ""
    if size < part.position:
        # Somebody cut the segment, or it is an older copy: what follows is not lost with what is missing.
        text = f"goes on {part.position - size} bytes behind the end of {path}{SEGMENT}"
        _append_zeros(file, part.position - size)
    if there:
        inside.write_at(part.position, part.data[: len(there)])
    if len(there) < len(part.data):
        file.append(part.data[len(there) :])
    return text


def _append_zeros(file: DiskFile, count: int) -> None:
    while count:
        some = min(count, STREAM_WALK_BYTES)
        file.append(bytes(some))
        count -= some


def _is_another(part: Logged, there: bytes) -> bool:
    """Whether the segment has a whole message where the log has another one."""
    position, offset = 0, part.first
    while position < len(part.data):
        end = position + HEAD.size + HEAD.unpack_from(part.data, position)[0]
        if there[position:end] != part.data[position:end]:
            break
        position, offset = end, offset + 1
    return len(whole_frames(there[position:], offset, part.seed)[0]) > 0


# --- who only reads -------------------------------------------------------------------------------


def patches_of(disk: Disk) -> dict[str, list[Patch]]:
    """What the logs have and the segments have not, by the paths of these. Changes nothing."""
    found: dict[str, list[Patch]] = {}
    for path in logs_of(disk):
        with contextlib.suppress(
            FileNotFoundError
        ):  # a node that runs was faster: it is all in its place
            reading = read_log(read_all(disk, path))
            for segment, parts in _by_segment(reading.parts).items():
                name = path_of(folder_of(segment[0]), segment[1]) + SEGMENT
                with contextlib.suppress(FileNotFoundError):
                    missing = _missing(disk, name, parts)
                    if missing:
                        found.setdefault(name, []).extend(missing)
    return found


def _missing(disk: Disk, path: str, parts: list[Logged]) -> list[Patch]:
    file = disk.open(path, create=False)
    try:
        head = read_head(file)
        patches = []
        for part in parts:
            if head is None or part.seed != head.seed:
                continue
            there = file.read_at(part.position, len(part.data))
            if there != part.data and not _is_another(part, there):
                patches.append(Patch(part.position, part.data))
        return patches
    finally:
        file.close()
