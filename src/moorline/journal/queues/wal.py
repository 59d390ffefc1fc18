"""Room: journal/queues. The write-ahead log: one for the node, in segments, written in batches.

    wal/00000000000000000001.wal    named by the lsn of its first change

    head    magic   8 bytes "MOORWAL2"
            seed    u64     drawn for this segment
            seed    u64     the same again: without it not one batch could be told from rubbish
    batch   magic   u32   "MWAL"
            length  u32   bytes of the payload
            check   u64   XXH3-64 with the seed over first, count and payload
            first   u64   lsn of the first change
            count   u32   changes in the payload
    payload change after change:
            kind    u8
            queue   24 bytes
            number  u64   what the kind says: a time, a message's id, a count
            length  u32   bytes of the body
            body

All numbers are big-endian. A batch is whole or it is not there: recovery cuts the last segment at the
first batch that is not whole. In an earlier segment, or with whole batches behind it, a bad batch is
damage and not a torn end: a repair takes out what is bad and keeps every whole batch. The seed keeps a
sender from writing a message that looks like a batch.
"""

import contextlib
import secrets
import struct
from collections.abc import Callable, Generator, Iterator
from enum import IntEnum
from typing import NamedTuple

import xxhash

from moorline.core.queue.queue import Queue
from moorline.errors import FolderUnusable, LogDamaged
from moorline.journal.disk import Disk, DiskFile

HEAD = struct.Struct(">8sQQ")
HEAD_MAGIC = b"MOORWAL2"
EARLIER_MAGIC = b"MOORWAL1"
MAGIC = 0x4D57414C
BATCH = struct.Struct(">IIQQI")
CHANGE = struct.Struct(">B24sQI")
CHECKED_FROM = 16
"""Offset of `first` in a batch: the check covers everything from there on."""


class Kind(IntEnum):
    SEND = 1
    MARK = 2
    ACKNOWLEDGE = 3
    NEW = 4
    DELETE = 5
    SUSPEND = 6
    BLOCK = 7
    UNBLOCK = 8
    EXPIRE = 9
    CLOSE = 10
    OPEN = 11


class Change(NamedTuple):
    lsn: int
    kind: int
    queue: bytes
    number: int
    body: bytes


class Batch:
    """Changes that are committed together."""

    __slots__ = ("count", "first", "parts", "size", "woken")

    def __init__(self, first: int) -> None:
        self.first = first
        self.count = 0
        self.parts: list[bytes] = []
        self.size = BATCH.size
        self.woken: list[Queue] = []
        """Queues that have something to be delivered when this is committed."""

    def add(self, kind: int, queue: bytes, number: int, body: bytes) -> int:
        """Adds a change; returns its lsn."""
        self.parts.append(CHANGE.pack(kind, queue, number, len(body)))
        self.size += CHANGE.size
        if body:
            self.parts.append(body)
            self.size += len(body)
        lsn = self.first + self.count
        self.count += 1
        return lsn

    def encoded(self, seed: int) -> bytes:
        payload = b"".join(self.parts)
        head = bytearray(BATCH.pack(MAGIC, len(payload), 0, self.first, self.count))
        checker = xxhash.xxh3_64(bytes(head[CHECKED_FROM:]), seed=seed)
        checker.update(payload)
        struct.pack_into(">Q", head, 8, checker.intdigest())
        return bytes(head) + payload


class WriteAheadLog:
    """The segments on disk and the one that is written."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        *,
        sync: bool,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._sync = sync
        self._segments: list[tuple[int, str, int]] = []
        self._file: DiskFile | None = None
        self._file_bytes = 0
        self._seed = 0
        self._draw = draw
        self._first = 0
        self._name = ""
        self.torn_bytes = 0
        disk.make_folders(folder)
        if sync:
            disk.sync_folder("")

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches that are kept."""
        return self._file_bytes + sum(size for _, _, size in self._segments)

    @property
    def first(self) -> int:
        """The lsn with which the segment that is written begins."""
        return self._first

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written here."""
        return self._file is None and not self._names()

    def write(self, batch: Batch) -> None:
        """Stores a batch; with `sync` it is durable when this returns. Runs in a thread."""
        assert self._file is not None
        data = batch.encoded(self._seed)
        self._file.append(data)
        if self._sync:
            self._file.sync()
        self._file_bytes += len(data)

    def begin_segment(self, first: int) -> None:
        """From here on batches go to a new file; the old ones wait to be dropped."""
        if self._file is not None:
            if not self._file_bytes and self.is_in_place:
                return
            self._file.close()
            self._segments.append((self._first, self._name, self._file_bytes))
        self._first = first
        self._name = f"{self._folder}/{first:020}.wal"
        self._file = self._disk.open(self._name, create=True)
        # A crash may have left it with a part of a head.
        self._file.truncate(0)
        self._seed = int.from_bytes(self._draw(8), "big")
        self._file.append(HEAD.pack(HEAD_MAGIC, self._seed, self._seed))
        self._file_bytes = 0
        # A segment that a crash left empty has the same name, and is this one.
        self._segments = [segment for segment in self._segments if segment[1] != self._name]
        if self._sync:
            self._file.sync()
            self._disk.sync_folder(self._folder)

    def drop_before(self, first: int) -> None:
        """Removes the segments all of whose changes are below that lsn."""
        kept = []
        for place, segment in enumerate(self._segments):
            following = [one[0] for one in self._segments[place + 1 :]] + [self._first]
            if following[0] <= first:
                # Somebody may have been faster.
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(segment[1])
            else:
                kept.append(segment)
        self._segments = kept

    @property
    def is_in_place(self) -> bool:
        """Whether the file that is written still has its name; without it a start would not find it."""
        return self._file is None or self._disk.exists(self._name)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- recovery ---------------------------------------------------------------------------------

    def replay(self, *, repair: bool = False) -> Iterator[Change]:
        """All changes in order; cuts a torn end. Call before the first `begin_segment`.

        With `repair` damage is passed over: every change comes that is in a whole batch.
        """
        names = self._names()
        for place, name in enumerate(names):
            path = f"{self._folder}/{name}"
            file = self._disk.open(path, create=False)
            try:
                size = yield from self._replay_file(file, path, place == len(names) - 1, repair)
            finally:
                file.close()
            self._segments.append((int(name.removesuffix(".wal")), path, size))

    def survey(self) -> list["Survey"]:
        """What is bad in the segments; changes nothing."""
        names = self._names()
        found = []
        for place, name in enumerate(names):
            path = f"{self._folder}/{name}"
            file = self._disk.open(path, create=False)
            try:
                found.append(_surveyed(file, path, is_last=place == len(names) - 1))
            finally:
                file.close()
        return found

    def _names(self) -> list[str]:
        return [name for name in self._disk.list_folder(self._folder) if name.endswith(".wal")]

    def _replay_file(
        self, file: DiskFile, path: str, is_last: bool, repair: bool
    ) -> Generator[Change, None, int]:
        end = file.size()
        if end <= HEAD.size and _read_seed(file) is None:
            # A crash came before its head was whole, and no batch was ever in it.
            file.truncate(0)
            return 0
        _best_seed(file, end)  # refuses a log of another version by its name
        if _read_seed(file) is None and not repair:
            raise LogDamaged(
                f"the write-ahead log {path} has a damaged head: run `moor journal check --repair`"
            )
        size = 0
        for batch in _walk(file, end):
            if batch.payload is not None:
                yield from _changes(batch.payload, batch.first, batch.changes)
                size += batch.end - batch.start
            elif is_last and batch.end == end:
                self.torn_bytes = end - batch.start
                file.truncate(batch.start)
            elif not repair:
                raise LogDamaged(
                    f"the write-ahead log {path} is damaged at byte {batch.start} of {end}: run "
                    "`moor journal check --repair` to take that out; what is whole behind it is kept"
                )
        if self._sync:
            # What was read may have been only in the system's memory; from now on we rely on it.
            file.sync()
        return size


class Survey(NamedTuple):
    """What is bad in one segment: stretches from one byte to another, and what would be left."""

    path: str
    bad: list[tuple[int, int]]
    is_torn_end: bool
    """All that is bad is what a crash leaves at the end of the log, without a loss."""
    whole: list[tuple[int, int]]
    seed: int


class _BatchRange(NamedTuple):
    """A whole batch of a segment, or with `payload` None what stands where one should be."""

    start: int
    end: int
    payload: bytes | None
    first: int
    changes: int


def _surveyed(file: DiskFile, path: str, *, is_last: bool) -> Survey:
    end = file.size()
    head = _read_seed(file)
    if head is None and end <= HEAD.size:
        return Survey(path, [(0, end)] if end else [], True, [], 0)
    batches = list(_walk(file, end))
    bad = [(one.start, one.end) for one in batches if one.payload is None]
    whole = [(one.start, one.end) for one in batches if one.payload is not None]
    is_torn_end = is_last and head is not None and [stop for _, stop in bad] == [end]
    if head is None:
        bad.insert(0, (0, HEAD.size))
    return Survey(path, bad, is_torn_end, whole, _best_seed(file, end))


def _walk(file: DiskFile, end: int) -> Iterator[_BatchRange]:
    """A segment from its head to its end: whole batches, and what is none."""
    seed = _best_seed(file, end)
    offset = HEAD.size
    while offset < end:
        payload, first, count = _read_batch(file, offset, seed)
        if payload is None:
            following = _next_whole_batch(file, offset, end, seed)
            yield _BatchRange(offset, following, None, 0, 0)
            offset = following
        else:
            stop = offset + BATCH.size + len(payload)
            yield _BatchRange(offset, stop, payload, first, count)
            offset = stop


def _read_seed(file: DiskFile) -> int | None:
    """The seed of a head that is as it should be."""
    head = file.read_at(0, HEAD.size)
    if len(head) < HEAD.size:
        return None
    magic, seed, again = HEAD.unpack(head)
    return seed if magic == HEAD_MAGIC and seed == again else None


def _best_seed(file: DiskFile, end: int) -> int:
    """The seed, of a damaged head the one of the two that a batch is whole with."""
    head = file.read_at(0, HEAD.size)
    if len(head) < HEAD.size:
        return 0
    magic, seed, again = HEAD.unpack(head)
    if magic == EARLIER_MAGIC and seed != again:
        raise FolderUnusable(
            "the write-ahead log is of an earlier version of Moorline: start that version once more, "
            "stop it, and its log is empty"
        )
    if seed != again and _next_whole_batch(file, HEAD.size - 1, end, again) < end:
        return int(again)
    return int(seed)


def _read_batch(file: DiskFile, offset: int, seed: int) -> tuple[bytes | None, int, int]:
    head = file.read_at(offset, BATCH.size)
    if len(head) < BATCH.size:
        return None, 0, 0
    magic, length, check, first, count = BATCH.unpack(head)
    if magic != MAGIC:
        return None, 0, 0
    payload = file.read_at(offset + BATCH.size, length)
    checker = xxhash.xxh3_64(head[CHECKED_FROM:], seed=seed)
    checker.update(payload)
    if len(payload) < length or checker.intdigest() != check:
        return None, 0, 0
    return payload, first, count


def _next_whole_batch(file: DiskFile, offset: int, end: int, seed: int) -> int:
    """Where the next whole batch behind a bad one begins; the end if there is none."""
    window, overlap = 1 << 20, BATCH.size
    mark = struct.pack(">I", MAGIC)
    start = offset + 1
    while start < end:
        data = file.read_at(start, window + overlap)
        place = data.find(mark)
        while place != -1:
            if _read_batch(file, start + place, seed)[0] is not None:
                return start + place
            place = data.find(mark, place + 1)
        start += window
    return end


def _changes(payload: bytes, first: int, count: int) -> Iterator[Change]:
    start = 0
    for place in range(count):
        kind, queue, number, length = CHANGE.unpack_from(payload, start)
        start += CHANGE.size
        yield Change(first + place, kind, queue, number, payload[start : start + length])
        start += length
