"""Room: journal/queues. The write-ahead log: one for the node, in segments, written in batches.

    wal/00000000000000000001.wal    a growing segment, named by the lsn of its first change
    wal/prepared-00000001.wal       one whose blocks were written, as zeros, before it is begun

    head    magic   8 bytes "MOORWAL2", of a prepared one "MOORWAL3"
            seed    u64     drawn for this segment
            seed    u64     the same again: without it not one batch could be told from rubbish
            first   u64     lsn of the first change; of a prepared one only
            first   u64     the same again
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

All numbers are big-endian. A batch is whole or it is not there: recovery cuts the last segment at a batch
that is not whole, if a crash can have left it so: it is shorter than it says, or one of its sectors is
still zeros. In an earlier segment, with whole batches behind it, or with all its sectors written, a bad
batch is damage and not a torn end: a repair takes out what is bad and keeps every whole batch. The seed
keeps a sender from writing a message that looks like a batch.

A prepared segment ends where only zeros follow; zeros are no batch. It is begun by its head, which is
durable before the first batch is written: so one without a whole head and with nothing but zeros behind
it was never begun, and with anything behind it is damaged. A sync of such a file waits for no transaction
of the file system, since neither its size nor its blocks change (docs/decisions/0067). Where none is
ready, because the disk is slow or full, a growing one is begun. The order of segments is that of `first`.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from moorline.errors import DiskFull, LogDamaged
from moorline.journal.begun_syncs import BegunSyncs, Done
from moorline.journal.disk import Disk, DiskFile
from moorline.journal.queues.wal_batch import Batch, Change, Kind, changes_in
from moorline.journal.queues.wal_segment import (
    HEAD,
    PREPARED,
    PREPARED_HEAD,
    SUFFIX,
    Segment,
    Survey,
    head_of,
)
from moorline.limits import LOG_PREPARE_SYNC_BYTES, LOG_PREPARE_WRITE_BYTES

__all__ = ["HEAD", "Batch", "Change", "Kind", "WriteAheadLog"]


class _Kept(NamedTuple):
    """A segment that is not written any more."""

    first: int
    path: str
    size: int
    """Bytes of its batches."""


class _Prepared(NamedTuple):
    """A segment that is ready to be begun."""

    file: DiskFile
    path: str
    size: int


class WriteAheadLog:
    """The segments on disk and the one that is written.

    `write` and `begin_segment` are called in one thread, `prepare` in a second one and `drop_before` in a
    third: a lock keeps what they share. `begin` is called on the loop, while the first of them does nothing.
    """

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
        self._lock = threading.Lock()
        self._segments: list[_Kept] = []
        self._ready: list[_Prepared] = []
        self._prepared = 0
        self._is_closed = False
        self._file: DiskFile | None = None
        self._file_bytes = 0
        self._end = 0
        """Of a prepared segment that is written: where its blocks end. 0 of a growing one."""
        self._is_begun = False
        """What was written last may not be synced yet: whoever was asked to has not said so."""
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
        return self._file_bytes + sum(segment.size for segment in self._segments)

    def written(self) -> dict[str, int]:
        """Each file of the log that was begun, and how many of its bytes count; between two commits."""
        with self._lock:
            found = {kept.path: -1 for kept in self._segments}
        if self._file is not None:
            head = PREPARED_HEAD.size if self._end else HEAD.size
            found[self._name] = head + self._file_bytes
        return found

    def prepared_files(self) -> list[str]:
        """Those that wait to be begun: nothing is in them."""
        with self._lock:
            return [one.path for one in self._ready]

    @property
    def first(self) -> int:
        """The lsn with which the segment that is written begins."""
        return self._first

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written here."""
        return self._file is None and not any(is_begun for _, _, is_begun in self._found())

    def write(self, batch: Batch) -> None:
        """Stores a batch; with `sync` it is durable when this returns. Runs in a thread.

        After `DiskFull` the log is as it was: the same batch may be written again. After any other error
        nobody knows what is stored.
        """
        assert self._file is not None
        if self._is_to_be_left(batch.size):
            self._begin(batch.first, batch.size)
        file = self._put(batch)
        if self._sync:
            self._sync_file(file)
            self._is_begun = False

    def begin(self, batch: Batch, syncs: BegunSyncs, done: Done) -> bool:
        """Stores a batch, and calls back when it is durable; False if that is for a thread, and nothing is
        done yet. While the thread that writes does nothing."""
        assert self._file is not None
        if self._is_to_be_left(batch.size):
            return False
        file = self._put(batch)
        self._is_begun = True
        syncs.begin(file, done)
        return True

    def _put(self, batch: Batch) -> DiskFile:
        assert self._file is not None
        data = batch.encoded(self._seed)
        if self._end:
            self._file.write_at(PREPARED_HEAD.size + self._file_bytes, data)
        else:
            self._append(data)
        self._file_bytes += len(data)
        return self._file

    def _is_to_be_left(self, size: int) -> bool:
        """Whether a batch of that size goes to another segment than the one that is written."""
        if self._end:
            return PREPARED_HEAD.size + self._file_bytes + size > self._end
        return bool(self._file_bytes) and self._has_ready(size)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        try:
            self._file.append(data)
        except DiskFull:
            # A part of it may be there, and what is written next must not stand behind that.
            self._file.truncate(HEAD.size + self._file_bytes)
            raise

    def _sync_file(self, file: DiskFile) -> None:
        """What a sync could not store is lost for it: nobody may take that for a disk that is only full."""
        try:
            file.sync()
        except DiskFull as error:
            raise OSError(f"a sync of the log failed: {error}") from error

    # --- segments ---------------------------------------------------------------------------------

    def begin_segment(self, first: int) -> None:
        """From here on batches go to a new file; the old ones wait to be dropped.

        After `DiskFull` the log is as it was, and this may be tried again.
        """
        if self._file is None or self._file_bytes or not self.is_in_place:
            self._begin(first, 0)

    def _begin(self, first: int, size: int) -> None:
        """Begins a segment: a prepared one that a batch of that size fits into, if one is ready."""
        if self._file is not None and self._is_begun:
            # A sync of it may be under way yet, and a torn end is one only in the last segment.
            self._sync_file(self._file)
            self._is_begun = False
        seed = int.from_bytes(self._draw(8), "big")
        prepared = self._take_ready(size)
        if prepared is not None:
            file, name, end = prepared
            try:
                file.write_at(0, head_of(seed, first))
                if self._sync:
                    self._sync_file(file)
            except BaseException:
                self._discard(prepared)
                raise
        else:
            name, end = f"{self._folder}/{first:020}{SUFFIX}", 0
            file = self._grown(name, head_of(seed, None))
        if self._file is not None:
            self._file.close()
        with self._lock:
            kept = list(self._segments)
            if self._file is not None:
                kept.append(_Kept(self._first, self._name, self._file_bytes))
            # A segment that a crash left empty has the same name, and is this one.
            self._segments = [segment for segment in kept if segment.path != name]
            self._file, self._name, self._end = file, name, end
            self._first, self._seed, self._file_bytes = first, seed, 0

    def _grown(self, name: str, head: bytes) -> DiskFile:
        file = self._disk.open(name, create=True)
        try:
            # A crash may have left it with a part of a head.
            file.truncate(0)
            file.append(head)
            if self._sync:
                file.sync()
                self._disk.sync_folder(self._folder)
        except BaseException:
            file.close()
            raise
        return file

    def drop_before(self, first: int) -> None:
        """Removes the segments all of whose changes are below that lsn."""
        with self._lock:
            segments = list(self._segments)
            firsts = [*(segment.first for segment in segments), self._first]
        dropped = [one for one, end in zip(segments, firsts[1:], strict=True) if end <= first]
        for segment in dropped:
            # Somebody may have been faster.
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(segment.path)
        with self._lock:
            self._segments = [one for one in self._segments if one not in dropped]

    @property
    def is_in_place(self) -> bool:
        """Whether the file that is written still has its name; without it a start would not find it."""
        return self._file is None or self._disk.exists(self._name)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.give_back()
        if self._file is not None:
            if self._end:
                # Nobody needs the zeros behind it any more, and nobody is harmed by them.
                with contextlib.suppress(OSError):
                    self._file.truncate(PREPARED_HEAD.size + self._file_bytes)
            self._file.close()
            self._file = None

    # --- segments that are prepared ---------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Prepared segments that wait to be begun."""
        return len(self._ready)

    def prepare(self, size: int) -> None:
        """Makes a segment of that size ready, in a thread; raises what the disk says, and leaves nothing."""
        self._prepared += 1
        path = f"{self._folder}/{PREPARED}{self._prepared:08}{SUFFIX}"
        while self._disk.exists(path):
            self._prepared += 1
            path = f"{self._folder}/{PREPARED}{self._prepared:08}{SUFFIX}"
        file = self._disk.open(path, create=True)
        try:
            zeros = memoryview(bytes(LOG_PREPARE_WRITE_BYTES))
            for start in range(0, size, len(zeros)):
                # In small parts, and few syncs: each of those is a transaction of the file system.
                if start and start % LOG_PREPARE_SYNC_BYTES == 0:
                    file.sync()
                file.append(zeros[: size - start])
            file.sync()
            self._disk.sync_folder(self._folder)
        except BaseException:
            self._discard(_Prepared(file, path, size))
            raise
        with self._lock:
            if not self._is_closed:
                self._ready.append(_Prepared(file, path, size))
                return
        self._discard(_Prepared(file, path, size))

    def give_back(self) -> None:
        """Removes what is prepared and not begun: its room is needed."""
        with self._lock:
            ready, self._ready = self._ready, []
        for prepared in ready:
            self._discard(prepared)

    def _discard(self, prepared: _Prepared) -> None:
        prepared.file.close()
        with contextlib.suppress(OSError):
            self._disk.remove(prepared.path)

    def _has_ready(self, size: int) -> bool:
        return any(PREPARED_HEAD.size + size <= one.size for one in self._ready)

    def _take_ready(self, size: int) -> _Prepared | None:
        with self._lock:
            for place, prepared in enumerate(self._ready):
                # One that somebody removed would not be found by a start.
                if PREPARED_HEAD.size + size <= prepared.size and self._disk.exists(prepared.path):
                    return self._ready.pop(place)
        return None

    # --- recovery ---------------------------------------------------------------------------------

    def replay(self, *, repair: bool = False) -> Iterator[Change]:
        """All changes in order; cuts a torn end. Call before the first `begin_segment`.

        With `repair` damage is passed over: every change comes that is in a whole batch.
        """
        found = self._found()
        last = _last(found)
        for _, path, is_begun in found:
            if not _counts(path, is_begun=is_begun):
                self._disk.remove(path)
                continue
            with self._opened(path) as segment:
                size = yield from self._replay_segment(segment, path == last, repair)
                self._segments.append(_Kept(segment.first, path, size))

    def survey(self) -> list[Survey]:
        """What is bad in the segments; changes nothing."""
        segments, surveys = self._found(), []
        last = _last(segments)
        for _, path, _ in segments:
            with self._opened(path) as segment:
                surveys.append(segment.survey(is_last=path == last))
        return surveys

    def _found(self) -> list[tuple[int, str, bool]]:
        """First lsn, path, and whether it was ever begun, of every file of the log, in their order."""
        found = []
        for name in self._disk.list_folder(self._folder):
            if name.endswith(SUFFIX):
                with self._opened(f"{self._folder}/{name}") as segment:
                    found.append((segment.first, segment.path, segment.is_begun))
        # A prepared one of the same lsn is empty: a crash, or a large batch, made another one follow it.
        return sorted(found, key=lambda one: (one[0], not _is_prepared(one[1])))

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Segment]:
        file = self._disk.open(path, create=False)
        try:
            yield Segment(file, path)
        finally:
            file.close()

    def _replay_segment(
        self, segment: Segment, is_last: bool, repair: bool
    ) -> Generator[Change, None, int]:
        file, path, end = segment.file, segment.path, segment.end
        if not segment.is_begun:
            # A crash came before its head was whole, and no batch was ever in it.
            file.truncate(0)
            return 0
        if not segment.has_whole_head and not repair:
            raise LogDamaged(
                f"the write-ahead log {path} has a damaged head: run `moor journal check --repair`"
            )
        size = 0
        for batch in segment.batches():
            if batch.payload is not None:
                yield from changes_in(batch.payload, batch.first, batch.changes)
                size += batch.end - batch.start
            elif is_last and batch.end == end and segment.may_be_torn(batch.start):
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


def _last(found: list[tuple[int, str, bool]]) -> str:
    """The path of the segment that the log ends with: where a crash may have left a torn batch."""
    paths = [path for _, path, is_begun in found if _counts(path, is_begun=is_begun)]
    return paths[-1] if paths else ""


def _counts(path: str, *, is_begun: bool) -> bool:
    """Whether it is a part of the log: one that was only prepared is not, and a start removes it."""
    return is_begun or not _is_prepared(path)


def _is_prepared(path: str) -> bool:
    return path.rpartition("/")[2].startswith(PREPARED)
