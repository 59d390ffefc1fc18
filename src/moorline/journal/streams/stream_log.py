"""Room: journal/streams. The log of small commits: one file for all shards, synced once a commit.

    log/00000007.log    written with zeros before it is begun, and removed when its segments are synced

    head    magic       7 bytes "MOORLOG"
            version     u8    1
            number      u64   as in the name
            seed        u64   drawn for this file
            store       16 bytes: the beginning of the node's id
            check       u64   XXH3-64 of the 40 bytes before it
    batch   check       u64   XXH3-64, seeded with `seed`, of all that follows of the batch
            length      u32   bytes of its parts
            parts       u32
            number      u64   of the batches of this file, from 0 on
    part    shard       u32
            generation  u32
            seed        u64   of that segment
            first       u64   offset of the first message
            position    u64   in the segment, of the first frame
            length      u32   bytes of the frames
            count       u32   messages
            then        frames, as the segment has them from there on

Numbers are little-endian. A batch is whole or it is not there; the last one that is whole ends the log, and
what may follow it is what a crash left of one that nobody was told of. The next batch is written when the one
before it is synced, so that a bad batch with a whole one behind it is damage. The seed keeps a publisher from
writing a message that looks like a batch.

What is in a log is written to the segments too, without a sync, before any reader sees it. So the log is
needed only behind a power cut, and only until its segments are synced: `work` does that behind a file that
has no more room, and removes the file. Where no file is ready, because the disk is slow or has little room,
commits go straight to the segments. What a start does with a log is in `log_recovery.py`.
"""

import contextlib
import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import xxhash

from moorline.core.frames.block import Block
from moorline.errors import DiskFull, TooManyFiles
from moorline.journal.disk import TEMPORARY_SUFFIX, Disk, DiskFile
from moorline.journal.streams.generation import SEGMENT, Generation
from moorline.limits import KIB, STREAM_LOG_BYTES

FOLDER = "log"
SUFFIX = ".log"
MAGIC = b"MOORLOG"
VERSION = 1

LOG_HEAD = struct.Struct("<7sBQQ16sQ")
CHECK = struct.Struct("<Q")
BATCH = struct.Struct("<IIQ")
"""A batch's head behind its check."""

PART = struct.Struct("<IIQQQII")

_ZEROS = 256 * KIB
_hash = xxhash.xxh3_64_intdigest


class LoggedPart(Protocol):
    """What a commit brings to one segment: a `Part`."""

    @property
    def generation(self) -> Generation: ...
    @property
    def block(self) -> Block: ...
    @property
    def position(self) -> int: ...


class LogHead(NamedTuple):
    """What a log says of itself."""

    number: int
    seed: int
    store: bytes

    def __bytes__(self) -> bytes:
        data = LOG_HEAD.pack(MAGIC, VERSION, *self, 0)[: -CHECK.size]
        return data + CHECK.pack(_hash(data))


class _LogFile:
    """One file, and the segments that are synced before it goes."""

    def __init__(self, file: DiskFile, path: str, seed: int) -> None:
        self.file = file
        self.path = path
        self.seed = seed
        self.position = LOG_HEAD.size
        self.batches = 0
        self.segments: set[str] = set()


class StreamLog:
    """The file that is written, the one that is ready behind it, and those whose segments are to be synced.

    Whoever commits calls `has_room` and `write`, in one thread at a time; `work` runs in another one.
    """

    def __init__(self, disk: Disk, store: bytes, draw: Callable[[int], bytes]) -> None:
        self._disk = disk
        self._store = store
        self._draw = draw
        self._lock = threading.Lock()
        self._number = 0
        self._current: _LogFile | None = None
        self._ready: _LogFile | None = None
        self._lost: _LogFile | None = None
        """One that somebody took: it gets no more."""
        self._left: list[_LogFile] = []
        self._is_wanted = False
        self._is_closed = False

    def open(self, number_before: int) -> None:
        """Behind the recovery, which has left no log; numbers go on."""
        self._number = number_before

    # --- a commit ---------------------------------------------------------------------------------

    def has_room(self, size_bytes: int, parts: int) -> bool:
        """Whether a batch with so many bytes of frames can be written; if not, `work` will see to it."""
        needed = CHECK.size + BATCH.size + parts * PART.size + size_bytes
        current = self._current
        if (
            current is not None
            and current is not self._lost
            and current.position + needed <= STREAM_LOG_BYTES
        ):
            return True
        if current is not None:
            with self._lock:
                self._left.append(current)
                self._current = None
        if self._ready is None:
            self._is_wanted = True
            return False
        with self._lock:
            self._current, self._ready = self._ready, None
        self._is_wanted = True
        return True

    def write(self, parts: Sequence[LoggedPart]) -> DiskFile:
        """Writes a batch that has room. Durable when the file is synced, which the next one must wait for."""
        current = self._current
        assert current is not None, "nobody asked whether there is room"
        pieces = [b""]
        length = 0
        for part in parts:
            head, block = part.generation.head, part.block
            data = block.data
            pieces.append(
                PART.pack(
                    head.shard,
                    head.generation,
                    head.seed,
                    block.first,
                    part.position,
                    len(data),
                    block.upto - block.first,
                )
            )
            pieces.append(data)
            length += PART.size + len(data)
            current.segments.add(part.generation.path)
        pieces[0] = BATCH.pack(length, len(parts), current.batches)
        batch = b"".join(pieces)
        current.file.write_at(current.position, CHECK.pack(_hash(batch, current.seed)) + batch)
        current.position += CHECK.size + len(batch)
        current.batches += 1
        return current.file

    # --- behind the commits, in a thread ----------------------------------------------------------

    @property
    def wants_work(self) -> bool:
        """Whether there may be any; asked behind every commit."""
        return bool(self._left) or (self._is_wanted and self._ready is None)

    def has_work(self, *, may_prepare: bool) -> bool:
        return bool(self._left) or (may_prepare and self.wants_work)

    def work(self, *, may_prepare: bool) -> bool:
        """Syncs the segments of files that are full, removes these, and makes the next one ready.

        False if the disk has no room for the next one: then it is to be tried again later.
        """
        while self._left:
            self._drop(self._left[0])
            with self._lock:
                del self._left[0]
        if not (may_prepare and self._is_wanted and self._ready is None):
            return True
        try:
            prepared = self._prepared()
        except (DiskFull, TooManyFiles):
            return False
        with self._lock:
            if not self._is_closed:
                self._ready, self._is_wanted = prepared, False
                return True
        prepared.file.close()
        return True

    def _drop(self, left: _LogFile) -> None:
        self._sync_segments(left)
        left.file.close()
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(left.path)

    def _sync_segments(self, log: _LogFile) -> None:
        for path in sorted(log.segments):
            # By a handle of its own: who commits may end the generation meanwhile. What retention took, or
            # somebody else, needs no sync.
            with contextlib.suppress(FileNotFoundError):
                file = self._disk.open(path + SEGMENT, create=False)
                try:
                    file.sync()
                finally:
                    file.close()

    def _prepared(self) -> _LogFile:
        """A file of zeros behind a head. It has its name only when all of that is durable: a file with the
        name of a log and without a whole head is a damaged one."""
        self._number += 1
        path = f"{FOLDER}/{self._number:08}{SUFFIX}"
        self._disk.make_folders(FOLDER)
        self._disk.sync_folder("")
        head = LogHead(self._number, int.from_bytes(self._draw(8), "little"), self._store)
        temporary = path + TEMPORARY_SUFFIX
        file = self._disk.open(temporary, create=True)
        try:
            file.append(bytes(head))
            zeros = bytes(min(_ZEROS, STREAM_LOG_BYTES))
            for start in range(LOG_HEAD.size, STREAM_LOG_BYTES, len(zeros)):
                # In parts: one large buffer would hold the interpreter for as long as it takes to be made.
                file.append(memoryview(zeros)[: STREAM_LOG_BYTES - start])
            file.sync()
            self._disk.rename(temporary, path)
            self._disk.sync_folder(FOLDER)
        except BaseException:
            file.close()
            with contextlib.suppress(OSError):
                self._disk.remove(temporary)
            raise
        return _LogFile(file, path, head.seed)

    # --- files that vanish, and the end -----------------------------------------------------------

    def look(self) -> str:
        """In a thread: the path of the file that is written, if somebody took it; each is told once.

        What is in it is synced where it belongs, and nothing more is written to it.
        """
        current = self._current
        if current is None or current is self._lost or self._disk.exists(current.path):
            return ""
        self._lost = current
        self._sync_segments(current)
        return current.path

    def end(self) -> None:
        """At an orderly stop, when nothing is under way: all is in the segments, and no log is left."""
        with self._lock:
            for file in (self._current, self._ready):
                if file is not None:
                    self._left.append(file)
            self._current = self._ready = None
            self._is_closed = True
        self.work(may_prepare=False)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            files = [*self._left, self._current, self._ready]
            self._left, self._current, self._ready = [], None, None
        for file in files:
            if file is not None:
                file.file.close()
