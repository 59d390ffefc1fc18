"""Room: journal/queues. One segment of the write-ahead log, read: its head, its batches, and what is none.

The format is drawn in wal.py. Nothing here changes a file.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from moorline.errors import FolderUnusable
from moorline.journal.disk import DiskFile
from moorline.journal.queues.wal_batch import BATCH, MAGIC, next_whole_batch, read_batch

SUFFIX = ".wal"
PREPARED = "prepared-"
"""How the names of segments begin whose blocks were written before they were begun."""

HEAD = struct.Struct(">8sQQ")
HEAD_MAGIC = b"MOORWAL2"
EARLIER_MAGIC = b"MOORWAL1"
PREPARED_HEAD = struct.Struct(">8sQQQQ")
PREPARED_MAGIC = b"MOORWAL3"

_WINDOW_BYTES = 1 << 20
_SECTOR_BYTES = 512
"""The least that a disk writes: all of it, or nothing."""
NOWHERE = 1 << 64
"""In the place of an lsn: above every one."""


class BatchRange(NamedTuple):
    """A whole batch of a segment, or with `payload` None what stands where one should be."""

    start: int
    end: int
    payload: bytes | None
    first: int
    changes: int


class Survey(NamedTuple):
    """What is bad in one segment: stretches from one byte to another, and what would be left."""

    path: str
    bad: list[tuple[int, int]]
    is_torn_end: bool
    """All that is bad is what a crash leaves at the end of the log, without a loss."""
    whole: list[tuple[int, int]]
    head: bytes
    """The head as it should be."""
    first: int
    """The number of its first change; `NOWHERE` if nothing says it."""
    numbers: list[range]
    """Of the changes in each whole batch."""
    said: dict[int, range]
    """By where it begins, what a bad batch says of its own; a stretch of several bad ones says nothing."""


class Segment:
    """An open file of the log. Its name says which of the two formats it has."""

    def __init__(self, file: DiskFile, path: str) -> None:
        self.file = file
        self.path = path
        name = path.rpartition("/")[2].removesuffix(SUFFIX)
        self.is_prepared = name.startswith(PREPARED)
        self.head_bytes = PREPARED_HEAD.size if self.is_prepared else HEAD.size
        # Behind the last byte that was written: a prepared one goes on with zeros.
        self.end = _used(file) if self.is_prepared else file.size()
        seed = self._seed()
        self.has_whole_head = seed is not None
        self.is_begun = self.has_whole_head or self.end > self.head_bytes
        """Else a crash came before its head was whole, or it was only prepared: no batch was ever in it."""
        self.seed = self._best_seed() if seed is None else seed
        self.first = self._first() if self.is_prepared else int(name)
        """The lsn that it begins with."""

    def head(self) -> bytes:
        """As it should be."""
        return head_of(self.seed, self.first if self.is_prepared else None)

    def batches(self) -> Iterator[BatchRange]:
        """From the head to the end: whole batches, and what is none."""
        offset = self.head_bytes
        while offset < self.end:
            payload, first, count = read_batch(self.file, offset, self.seed)
            if payload is None:
                following = next_whole_batch(self.file, offset, self.end, self.seed)
                yield BatchRange(offset, following, None, 0, 0)
                offset = following
            else:
                # The last zeros of a batch may be behind what counts as written.
                stop = offset + BATCH.size + len(payload)
                yield BatchRange(offset, stop, payload, first, count)
                offset = stop

    def may_be_torn(self, start: int) -> bool:
        """Whether a crash can have left the bad batch that begins there, at the end of the log.

        It writes sectors in any order, and those that it did not write are zeros or behind the end of the
        file. A batch with all its sectors was written, and then changed: that is damage. Where a sector of
        a batch is zeros because a message is, nobody can tell, and it counts as torn.
        """
        behind_head = start + BATCH.size
        if not self._is_written(start, behind_head):
            return True
        magic, length, *_ = BATCH.unpack(self.file.read_at(start, BATCH.size))
        return magic == MAGIC and not self._is_written(start, behind_head + length)

    def _is_written(self, start: int, stop: int) -> bool:
        """Whether every sector has something of these bytes in it."""
        if stop > self.file.size():
            return False
        # From the beginning of a sector on, so that each is in one window as a whole.
        for window in range(start - start % _SECTOR_BYTES, stop, _WINDOW_BYTES):
            first, behind = max(start, window), min(stop, window + _WINDOW_BYTES)
            data = self.file.read_at(first, behind - first)
            for sector in range(window, behind, _SECTOR_BYTES):
                if not any(data[max(0, sector - first) : sector + _SECTOR_BYTES - first]):
                    return False
        return True

    def survey(self, *, is_last: bool) -> Survey:
        if not self.is_begun:
            bad = [(0, self.end)] if self.end else []
            return Survey(self.path, bad, True, [], self.head(), self.first, [], {})
        batches = list(self.batches())
        bad = [(one.start, one.end) for one in batches if one.payload is None]
        whole = [(one.start, one.end) for one in batches if one.payload is not None]
        is_torn_end = is_last and self.has_whole_head and [stop for _, stop in bad] == [self.end]
        is_torn_end = is_torn_end and self.may_be_torn(bad[0][0])
        if not self.has_whole_head:
            bad.insert(0, (0, self.head_bytes))
        said = {start: self._said(start, stop) for start, stop in bad if start}
        numbers = [
            range(one.first, one.first + one.changes) for one in batches if one.payload is not None
        ]
        head = self.head()
        return Survey(self.path, bad, is_torn_end, whole, head, self.first, numbers, said)

    def _said(self, start: int, stop: int) -> range:
        """The numbers that a bad batch names, if it is as long as it says."""
        head = self.file.read_at(start, BATCH.size)
        if len(head) < BATCH.size:
            return range(0)
        _, length, _, first, count = BATCH.unpack(head)
        is_one = start + BATCH.size + length >= stop
        return range(first, first + count) if is_one else range(0)

    def _seed(self) -> int | None:
        """The seed of a head that is as it should be."""
        head = self.file.read_at(0, self.head_bytes)
        if len(head) < self.head_bytes:
            return None
        magic, seed, again = HEAD.unpack_from(head)
        if self.is_prepared:
            *_, first, once_more = PREPARED_HEAD.unpack(head)
            is_whole = magic == PREPARED_MAGIC and first == once_more
        else:
            is_whole = magic == HEAD_MAGIC
        return int(seed) if is_whole and seed == again else None

    def _best_seed(self) -> int:
        """Of a damaged head the one of the two that a batch is whole with."""
        head = self.file.read_at(0, self.head_bytes)
        if len(head) < self.head_bytes:
            return 0
        magic, seed, again = HEAD.unpack_from(head)
        if magic == EARLIER_MAGIC and seed != again:
            raise FolderUnusable(
                "the write-ahead log is of an earlier version of Moorline: start that version once more, "
                "stop it, and its log is empty"
            )
        behind_head = self.head_bytes - 1
        if seed != again and next_whole_batch(self.file, behind_head, self.end, again) < self.end:
            return int(again)
        return int(seed)

    def _first(self) -> int:
        if self.has_whole_head:
            return int(PREPARED_HEAD.unpack(self.file.read_at(0, PREPARED_HEAD.size))[-1])
        # The name does not say it and the head cannot: the batches do.
        found = (one.first for one in self.batches() if one.payload is not None)
        return next(found, NOWHERE)


def head_of(seed: int, first: int | None) -> bytes:
    """The head of a segment; that of a prepared one says with which lsn it begins."""
    if first is None:
        return HEAD.pack(HEAD_MAGIC, seed, seed)
    first = min(first, NOWHERE - 1)
    return PREPARED_HEAD.pack(PREPARED_MAGIC, seed, seed, first, first)


def _used(file: DiskFile) -> int:
    """Where the zeros begin that a file ends with."""
    end = file.size()
    while end:
        start = max(0, end - _WINDOW_BYTES)
        data = file.read_at(start, end - start).rstrip(b"\0")
        if data:
            return start + len(data)
        end = start
    return 0
