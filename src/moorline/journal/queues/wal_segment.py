"""Room: journal/queues. One segment of the write-ahead log, read: its head, its batches, and what is none.

The format is drawn in wal.py. Nothing here changes a file.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from moorline.errors import FolderUnusable
from moorline.journal.disk import DiskFile
from moorline.journal.queues.wal_batch import BATCH, next_whole_batch, read_batch

SUFFIX = ".wal"
PREPARED = "prepared-"
"""How the names of segments begin whose blocks were written before they were begun."""

HEAD = struct.Struct(">8sQQ")
HEAD_MAGIC = b"MOORWAL2"
EARLIER_MAGIC = b"MOORWAL1"
PREPARED_HEAD = struct.Struct(">8sQQQQ")
PREPARED_MAGIC = b"MOORWAL3"

_WINDOW_BYTES = 1 << 20
_NOWHERE = 1 << 64
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

    def survey(self, *, is_last: bool) -> Survey:
        if not self.is_begun:
            return Survey(self.path, [(0, self.end)] if self.end else [], True, [], self.head())
        batches = list(self.batches())
        bad = [(one.start, one.end) for one in batches if one.payload is None]
        whole = [(one.start, one.end) for one in batches if one.payload is not None]
        is_torn_end = is_last and self.has_whole_head and [stop for _, stop in bad] == [self.end]
        if not self.has_whole_head:
            bad.insert(0, (0, self.head_bytes))
        return Survey(self.path, bad, is_torn_end, whole, self.head())

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
        return next(found, _NOWHERE)


def head_of(seed: int, first: int | None) -> bytes:
    """The head of a segment; that of a prepared one says with which lsn it begins."""
    if first is None:
        return HEAD.pack(HEAD_MAGIC, seed, seed)
    first = min(first, _NOWHERE - 1)
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
