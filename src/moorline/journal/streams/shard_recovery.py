"""Room: journal/streams. Finding out after a start what a shard's folder holds.

Of generations that are sealed the heads and seals are read; of the newest one what its snapshot does
not speak of. What a crash left half done is finished here: a roll, a drop, a torn end. Seals that are missing
are left to the upkeep, but for those that the newest generation needs: a start is not to wait for them.
"""

from collections.abc import Container
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from moorline.core.frames.fields import flags_of
from moorline.core.frames.frame import CONTENT, FRAME, HEAD, RETAIN
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, DiskFile, read_all
from moorline.journal.streams.dropped import DROPPED_LOG, Dropped, DroppedReading, write_dropped
from moorline.journal.streams.generation import (
    DENSE,
    INDEX,
    SEAL,
    SEGMENT,
    SNAPSHOT,
    TOPICS,
    Generation,
)
from moorline.journal.streams.inspection import Inspection
from moorline.journal.streams.layout import path_of
from moorline.journal.streams.producers import remember
from moorline.journal.streams.seal import Memory, Summary, count_topics, read_seal, read_summary
from moorline.journal.streams.sealing import make_seal, summary_of, true_head
from moorline.journal.streams.segment import (
    SEGMENT_HEAD,
    Piece,
    SegmentHead,
    producers_of,
    read_frames,
    time_at,
    walk,
)
from moorline.journal.streams.segment_index import SparseIndex, entries_of
from moorline.limits import STREAM_SKIP_MARGIN

ASIDE = "aside"
"""Folder of files that stood in the way, each under the name of its shard and its own."""


class Found(NamedTuple):
    """What a folder holds. `retained` are contents that the log of retained messages may not have yet."""

    generations: list[Generation]
    producers: dict[int, int]
    retained: list[bytes]
    has_snapshot: bool


def recover(
    disk: Disk, folder: str, shard: int, dropped: dict[int, Dropped], found: Inspection
) -> Found:
    """Everything in order, oldest first. The newest may grow on, unless it is sealed."""
    # What is found may have been only in the system's memory; from now on we rely on it.
    disk.sync_folder(folder)
    for number in found.aside:
        put_aside(disk, folder, number)
    numbers = _finish_drops(disk, folder, dropped)
    generations = _heads(disk, folder, shard, numbers, dropped)
    if not generations:
        return Found([], {}, [], False)
    newest = generations[-1]
    short = {one.generation for one in found.problems if one.kind == "short"}
    for generation in generations:
        size_bytes = generation.size_bytes
        _load_seal(disk, generation)
        if generation.number in short and generation is not newest:
            # Sealed anew: what is left of it is counted, and what is not.
            generation.summary, generation.size_bytes = None, size_bytes
            # Whose the bytes are that it lost nobody knows: none are counted rather than too many.
            generation.publishers = {}
    newest.has_ended = newest.summary is not None or not newest.is_readable
    for generation, following in pairwise(generations):
        generation.has_ended = True
        # What is missing between two of them belongs to the first, as a gap.
        generation.end = following.first
        if generation.summary is not None and generation.summary.end != generation.end:
            generation.summary = None
        generation.is_timed = generation.summary is not None
    memory = Memory()
    has_snapshot = True
    retained: list[bytes] = []
    if newest.has_ended:
        if newest.summary is None:
            _seal_missing(disk, generations)
        memory.producers = producers_before(disk, [*generations, newest])
    else:
        has_snapshot, retained = _recover_newest(disk, generations, memory)
        newest.topics = memory.topics
    return Found(generations, memory.producers, retained, has_snapshot)


def producers_before(disk: Disk, generations: list[Generation]) -> dict[int, int]:
    """What the newest seal before the last of them remembers: one that vanished may have left none."""
    for generation in reversed(generations[:-1]):
        seal = read_seal(disk, generation.path + SEAL)
        if seal is not None:
            return seal[1].producers
    return {}


def _finish_drops(disk: Disk, folder: str, dropped: Container[int]) -> list[int]:
    """Removes what was given up; what describes segments that are not there is set aside."""
    names = disk.list_folder(folder)
    numbers = []
    for name in names:
        stem, _, _ = name.partition(".")
        if not stem.isdecimal() or name.endswith(TEMPORARY_SUFFIX):
            continue
        if int(stem) in dropped:
            disk.remove(f"{folder}/{name}")
        elif stem + SEGMENT not in names:
            leave_file(disk, folder, name)
        elif name == stem + SEGMENT:
            numbers.append(int(stem))
    return sorted(numbers)


def put_aside(disk: Disk, folder: str, number: int) -> None:
    """All files of a generation that is not ours; the segment last, so that a crash leaves it to be found."""
    for ending in (SNAPSHOT, SEAL, TOPICS, DENSE, INDEX, SEGMENT):
        if disk.exists(path_of(folder, number) + ending):
            leave_file(disk, folder, f"{number:08}{ending}")


def leave_file(disk: Disk, folder: str, name: str) -> None:
    """Out of the way, and nothing of it is lost. What is there of that name already stays there. Without a
    folder it is one beside those of the shards."""
    disk.make_folders(ASIDE)
    disk.rename(f"{folder}/{name}" if folder else name, _free_name(disk, folder, name))
    disk.sync_folder(ASIDE)
    disk.sync_folder(folder)


def _free_name(disk: Disk, folder: str, name: str) -> str:
    first = f"{ASIDE}/{folder}-{name}" if folder else f"{ASIDE}/{name}"
    target, count = first, 1
    while disk.exists(target):
        count += 1
        target = f"{first}.{count}"
    return target


def mend_dropped(disk: Disk, folder: str, store: bytes, reading: DroppedReading) -> None:
    """Lines that are not of this shard are told once: a copy of all is kept, and those that are stay."""
    disk.make_folders(ASIDE)
    path = f"{folder}/{DROPPED_LOG}"
    disk.write_whole(_free_name(disk, folder, DROPPED_LOG), read_all(disk, path))
    write_dropped(disk, folder, store, reading.dropped.values())


def _heads(
    disk: Disk, folder: str, shard: int, numbers: list[int], dropped: dict[int, Dropped]
) -> list[Generation]:
    found: list[Generation] = []
    end = max((gone.upto for gone in dropped.values()), default=0)
    for number in numbers:
        path = path_of(folder, number)
        file = disk.open(path + SEGMENT, create=False)
        try:
            size = file.size()
            head = true_head(disk, path, file, SegmentHead(shard, number, 0, 0, 0))
            if head is not None:
                generation = Generation(disk, path, head)
            elif number == numbers[-1] and not _holds_anything(file, size):
                # A crash while it was made: nobody was told of anything in it.
                disk.remove(path + SEGMENT)
                continue
            else:
                if found:
                    end = _end_of(disk, found[-1])
                head = SegmentHead(shard, number, end, 0, 0)
                generation = Generation(disk, path, head, is_readable=False)
                generation.end = _likely_end(file, size, end)
        finally:
            file.close()
        generation.size_bytes = max(size, SEGMENT_HEAD.size)
        end = generation.end
        found.append(generation)
    return found


def _holds_anything(file: DiskFile, size: int) -> bool:
    return size > SEGMENT_HEAD.size and any(file.read_at(0, size))


def _end_of(disk: Disk, generation: Generation) -> int:
    """Where a generation ends by itself, if the next one cannot tell."""
    summary = read_summary(disk, generation.path + SEAL)
    if summary is not None and summary.seed == generation.head.seed:
        return summary.end
    if not generation.is_readable:
        return generation.end
    upto = generation.first
    file = disk.open(generation.path + SEGMENT, create=False)
    try:
        for found in walk(file, SEGMENT_HEAD.size, file.size(), upto, generation.head.seed):
            upto = max(upto, found.upto)
    finally:
        file.close()
    return upto


def _likely_end(file: DiskFile, size: int, first: int) -> int:
    """The end of a segment without a head, and so without checks: so that no offset is given twice."""
    position, end = SEGMENT_HEAD.size, first
    highest = first + size // FRAME.size + STREAM_SKIP_MARGIN
    while position + FRAME.size <= size:
        length, _, offset, *_ = FRAME.unpack(file.read_at(position, FRAME.size))
        if offset > highest:
            return highest  # no offset, but some other bytes: nobody can tell how many there were
        if offset < end or (end > first and offset != end) or length < CONTENT.size:
            break
        end = offset + 1
        position += HEAD.size + length
    return end


def _load_seal(disk: Disk, generation: Generation) -> None:
    summary = read_summary(disk, generation.path + SEAL)
    head = generation.head
    if summary is None or not generation.is_readable or summary.seed != head.seed:
        # One that ended and was not sealed: whose bytes they are is known up to its last snapshot.
        snapshot = read_summary(disk, generation.path + SNAPSHOT)
        if snapshot is not None and snapshot.seed == head.seed:
            generation.publishers = _within(snapshot, generation.size_bytes)
        return
    if summary.first == head.first and summary.end >= head.first:
        generation.summary = summary
        generation.end = summary.end
        generation.size_bytes = summary.bytes
        generation.first_time_us = summary.first_time_us
        generation.last_time_us = summary.last_time_us
        generation.publishers = summary.publishers


def _within(snapshot: Summary, size_bytes: int) -> dict[str, int]:
    """Nobody's, if the segment has lost what the snapshot speaks of."""
    return snapshot.publishers if snapshot.bytes <= size_bytes else {}


def _seal_missing(disk: Disk, generations: list[Generation]) -> None:
    for place, generation in enumerate(generations):
        if generation.summary is not None:
            continue
        seal = make_seal(disk, generation, producers_before(disk, generations[: place + 1]))
        generation.summary = summary_of(generation, seal)
        generation.know_times(seal.first_time_us, seal.last_time_us)
        generation.index = None


# --- the newest generation --------------------------------------------------------------------------


def _recover_newest(
    disk: Disk, generations: list[Generation], memory: Memory
) -> tuple[bool, list[bytes]]:
    """Reads its tail, and cuts what is torn; says whether its snapshot is good, and what is retained."""
    generation = generations[-1]
    file = disk.open(generation.path + SEGMENT, create=False)
    generation.file = file
    size = file.size()
    position, has_snapshot = _start_from_snapshot(disk, generation, file, size, memory)
    if not has_snapshot:
        # What it would say of the producers before it is in the seals.
        _seal_missing(disk, generations[:-1])
        remember(memory.producers, producers_before(disk, generations).items())
    assert generation.index is not None
    retained: list[bytes] = []
    for found in walk(file, position, size, generation.end, generation.head.seed):
        if isinstance(found, Piece):
            retained += _take_in(generation, found, memory)
        elif found.upto >= 0:
            generation.note(found, found.upto, found.position)
            generation.end, generation.size_bytes = found.upto, found.position
    if generation.size_bytes < size:
        file.truncate(generation.size_bytes)
    # As with the names: from now on we rely on it.
    file.sync()
    generation.index_file = _write_index(disk, generation)
    return has_snapshot, retained


def _start_from_snapshot(
    disk: Disk, generation: Generation, file: DiskFile, size: int, memory: Memory
) -> tuple[int, bool]:
    """Where the walk begins: behind the snapshot, if it and the index can be relied upon."""
    head = generation.head
    generation.index = SparseIndex()
    generation.size_bytes = SEGMENT_HEAD.size
    generation.publishers = {}
    found = read_seal(disk, generation.path + SNAPSHOT)
    if found is None or found[0].seed != head.seed or found[0].bytes > size:
        # Without a sync the segment may have lost more than the snapshot: then it knows too much.
        return SEGMENT_HEAD.size, False
    summary, remembered = found
    generation.publishers = summary.publishers
    memory.producers = remembered.producers
    entries = read_all(disk, generation.path + INDEX)
    index = SparseIndex.loaded(entries, head.first, summary.end, summary.bytes)
    if index is None or not _last_is_true(file, generation, index):
        return SEGMENT_HEAD.size, True
    memory.topics = remembered.topics
    generation.index = index
    generation.end, generation.size_bytes = summary.end, summary.bytes
    generation.first_time_us = summary.first_time_us
    generation.last_time_us = summary.last_time_us
    return summary.bytes, True


def _last_is_true(file: DiskFile, generation: Generation, index: SparseIndex) -> bool:
    if not len(index):
        return True
    position, offset = index.positions[-1], index.offsets[-1]
    piece = read_frames(file, position, file.size(), offset, generation.head.seed, 1)
    return len(piece.positions) > 0 and time_at(piece.data, 0) == index.times_us[-1]


def _take_in(generation: Generation, piece: Piece, memory: Memory) -> list[bytes]:
    """The newest generation learns of frames; returns the contents that are to be retained."""
    if generation.end == generation.first:
        generation.first_time_us = time_at(piece.data, piece.positions[0])
    generation.last_time_us = time_at(piece.data, piece.positions[-1])
    generation.end = piece.upto
    generation.size_bytes = piece.position + len(piece.data)
    assert generation.index is not None
    generation.index.add(entries_of(piece.first, piece.position, piece.data, piece.positions))
    remember(memory.producers, producers_of(piece))
    count_topics(memory.topics, piece.topic_counts())
    chosen = np.flatnonzero(flags_of(piece.data, piece.positions) & RETAIN)
    if not len(chosen):
        return []
    contents = piece.contents()
    starts, ends = contents.starts[chosen], (contents.starts + contents.lengths)[chosen]
    return list(map(piece.data.__getitem__, map(slice, starts.tolist(), ends.tolist())))


def _write_index(disk: Disk, generation: Generation) -> DiskFile:
    """The index file says what the index says; it is not synced, a crash only costs another walk."""
    assert generation.index is not None
    entries = generation.index.entries()
    file = disk.open(generation.path + INDEX, create=True)
    if file.read_at(0, file.size()) != entries:
        file.truncate(0)
        file.append(entries)
    return file
