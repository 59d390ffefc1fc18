"""Room: journal/streams. The last retained message of each topic, in memory and in one log.

    retained.log   a head as of a segment, with the shard 0xFFFFFFFF; then frames, checked with its seed

A frame is the message as its shard has it, offset included. The newest by time counts; an empty body is a
tombstone: it says since when there is none. The log is compacted at a start, and when half of it is
outdated. It is written after the shards, so it never knows of a message that they have lost; what it has
missed in a crash the shards' tails bring back.

A compaction takes several commits: each adds its frames to the log as ever, and then a slice to the new log
beside it (`retained_copy.py`). Until the new one has all and takes the name, the old one is the log.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from moorline.core.frames.frame import CONTENT, FRAME, HEAD, PRODUCER, PRODUCER_PART, check_of
from moorline.core.topic_tree import TopicTree
from moorline.journal.disk import Disk, DiskFile, read_all
from moorline.journal.streams.retained_copy import RetainedCopy
from moorline.journal.streams.segment import (
    SEGMENT_HEAD,
    SegmentHead,
    next_whole,
    read_head,
    whole_frames,
)
from moorline.limits import RETAINED_LOG_BYTES_MIN, RETAINED_SLICE_BYTES, RETAINED_TOMBSTONE_S

PATH = "retained.log"
_SHARD = 0xFFFF_FFFF


class Entry(NamedTuple):
    """A retained message of a topic; of two the newer one counts, whatever order they are found in."""

    time_us: int
    offset: int
    topic: str
    frame: bytes

    def is_newer_than(self, other: "Entry") -> bool:
        """By time; keys may bring one topic to two shards at the same time and offset, then by content."""
        if self[:2] != other[:2]:
            return self[:2] > other[:2]
        return self.frame[HEAD.size :] > other.frame[HEAD.size :]


class RetainedPart(NamedTuple):
    """What one commit brings: frames to append, and whether the log is to be compacted from now on."""

    entries: list[Entry]
    begins_copy: bool
    now_us: int


class Retained:
    """The loop owns it; `write` runs in a thread."""

    def __init__(self, disk: Disk, draw: Callable[[int], bytes]) -> None:
        self._disk = disk
        self._draw = draw
        self._seed = 0
        self._entries: dict[str, Entry] = {}
        self._by_level: TopicTree[Entry] = TopicTree()
        self._live_bytes = 0
        self._log_bytes = 0
        self._file: DiskFile | None = None
        self._copy: RetainedCopy | None = None
        """A compaction that is under way."""

    def open(self, missed: list[bytes], now_us: int) -> None:
        """Reads the log, adds what the shards have and it has not, and writes it anew if it has to change."""
        is_as_it_is = self._load()
        for content in missed:
            entry = self._entry_of(content)
            is_as_it_is = not self._put(entry) and is_as_it_is
        before_us = now_us - RETAINED_TOMBSTONE_S * 1_000_000
        for entry in list(self._entries.values()):
            if entry.time_us < before_us and is_tombstone(entry.frame):
                del self._entries[entry.topic]
                self._live_bytes -= len(entry.frame)
                is_as_it_is = False
        for entry in self._entries.values():
            self._by_level.put(entry.topic, entry)
        if not is_as_it_is:
            self._write_whole(now_us)
        self._file = self._disk.open(PATH, create=False)
        # What was read may have been only in the system's memory; from now on we rely on it.
        self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    @property
    def live_bytes(self) -> int:
        """Of the newest of each topic."""
        return self._live_bytes

    @property
    def count(self) -> int:
        """Of topics that have one, or have had one not long ago."""
        return len(self._entries)

    def walk(self, filter_text: str) -> Iterator[Entry | None]:
        """Those that match, step by step; None where a step found none. See core.topic_tree."""
        return self._by_level.walk(filter_text)

    # --- a commit ---------------------------------------------------------------------------------

    def take(self, contents: list[bytes], now_us: int) -> RetainedPart:
        entries = [self._entry_of(content) for content in contents]
        size = sum(len(entry.frame) for entry in entries)
        is_long = self._log_bytes + size > max(RETAINED_LOG_BYTES_MIN, 2 * self._live_bytes)
        return RetainedPart(entries, is_long and self._copy is None, now_us)

    def write(self, part: RetainedPart, *, is_synced: bool) -> None:
        assert self._file is not None
        frames = [entry.frame for entry in part.entries]
        size = sum(map(len, frames))
        self._file.append_many(frames)
        self._log_bytes += size
        if is_synced:
            self._file.sync()
        if part.begins_copy:
            # Nothing changes them meanwhile: this batch is the one that is on its way.
            kept = [entry.frame for entry in self._entries.values()]
            self._copy = RetainedCopy(self._disk, PATH, self._head(part.now_us), kept)
        if self._copy is not None:
            self._copy_more(self._copy, frames, size)

    def _copy_more(self, copy: RetainedCopy, frames: list[bytes], size: int) -> None:
        """Twice what was added at least: so it comes to its end, and the log to thrice of what counts."""
        copy.add(frames)
        if copy.write_slice(max(RETAINED_SLICE_BYTES, 2 * size)):
            assert self._file is not None
            self._file.close()
            self._file, self._log_bytes = copy.take_place()
            self._copy = None

    def committed(self, part: RetainedPart) -> None:
        for entry in part.entries:
            if self._put(entry):
                self._by_level.put(entry.topic, entry)

    # --- inside -----------------------------------------------------------------------------------

    def _put(self, entry: Entry) -> bool:
        """Whether it is newer than what was there."""
        known = self._entries.get(entry.topic)
        if known is not None:
            if not entry.is_newer_than(known):
                return False
            self._live_bytes -= len(known.frame)
        self._entries[entry.topic] = entry
        self._live_bytes += len(entry.frame)
        return True

    def _entry_of(self, content: bytes) -> Entry:
        offset, time_us, _, topic, _, _, _ = CONTENT.unpack_from(content)
        name = content[CONTENT.size : CONTENT.size + topic].decode()
        frame = HEAD.pack(len(content), check_of(content, self._seed)) + content
        return Entry(time_us, offset, name, frame)

    def _head(self, now_us: int) -> bytes:
        return bytes(SegmentHead(_SHARD, 0, 0, now_us, self._seed))

    def _write_whole(self, now_us: int) -> None:
        data = b"".join([self._head(now_us), *(entry.frame for entry in self._entries.values())])
        self._disk.write_whole(PATH, data)
        self._log_bytes = len(data)

    def _load(self) -> bool:
        """Whether the log is there, whole, and without anything outdated."""
        if not self._disk.exists(PATH):
            self._seed = int.from_bytes(self._draw(8), "little")
            return False
        file = self._disk.open(PATH, create=False)
        try:
            head, size = read_head(file), file.size()
            if head is None or head.shard != _SHARD:
                self._seed = int.from_bytes(self._draw(8), "little")
                return False
            self._seed = head.seed
            is_whole = self._load_frames(file, size)
        finally:
            file.close()
        self._log_bytes = size
        return is_whole and self._live_bytes + SEGMENT_HEAD.size == size

    def _load_frames(self, file: DiskFile, size: int) -> bool:
        position, is_whole = SEGMENT_HEAD.size, True
        data = read_all(self._disk, PATH)
        while position < size:
            frame = _frame_at(data, position, self._seed)
            if frame is None:
                is_whole = False
                gap = next_whole(file, position, size, 0, self._seed)
                if gap.upto < 0:
                    break
                position = gap.position
                continue
            self._put(self._entry_of(frame[HEAD.size :]))
            position += len(frame)
        return is_whole


def is_tombstone(frame: bytes) -> bool:
    """Whether a frame has no body."""
    length, _, _, _, _, topic, key, headers, flags = FRAME.unpack_from(frame)
    fixed = CONTENT.size + (PRODUCER_PART.size if flags & PRODUCER else 0)
    return bool(length == fixed + topic + key + headers)


def _frame_at(data: bytes, position: int, seed: int) -> bytes | None:
    if position + FRAME.size > len(data):
        return None
    length, _, offset, *_ = FRAME.unpack_from(data, position)
    frame = data[position : position + HEAD.size + length]
    return frame if len(whole_frames(frame, offset, seed)[0]) else None
