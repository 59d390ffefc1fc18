"""Room: journal/streams. One generation of a shard: a segment with its index, and reading it past damage.

Reading may happen in a thread: it opens the file for itself, and looks at nothing that is not committed.
What it finds damaged is noted once, for everybody.
"""

import threading
from collections.abc import Iterator

import numpy as np

from moorline.core.frames.block import Block, block_of
from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.fields import times_of
from moorline.core.sets.digest import Digest
from moorline.core.stream import DAMAGE, RETENTION, Gap
from moorline.journal.disk import Disk, DiskFile, parent, read_all
from moorline.journal.streams.frame_scan import Span, cut, piece_of, walk_by_index
from moorline.journal.streams.seal import Summary
from moorline.journal.streams.segment import (
    SEGMENT_HEAD,
    Piece,
    SegmentGap,
    SegmentHead,
    next_whole,
    read_frames,
)
from moorline.journal.streams.segment_index import (
    IndexBuild,
    IndexEntry,
    SparseIndex,
    dense_positions,
)
from moorline.limits import STREAM_DENSE_CACHED_MAX, STREAM_DENSE_READ, STREAM_SEEK_BYTES

SEGMENT, INDEX, DENSE, SEAL, SNAPSHOT = ".seg", ".idx", ".dense", ".seal", ".snapshot"
TOPICS = ".topics"


class Generation:
    """Messages `first` to before `end`, which are committed; the first `size_bytes` of its file."""

    __slots__ = (
        "_disk",
        "_lock",
        "_places",
        "_reach",
        "file",
        "first",
        "first_time_us",
        "gaps",
        "has_ended",
        "head",
        "index",
        "index_file",
        "is_gone",
        "is_readable",
        "is_timed",
        "last_time_us",
        "number",
        "path",
        "publishers",
        "summary",
        "topics",
    )

    def __init__(
        self, disk: Disk, path: str, head: SegmentHead, *, is_readable: bool = True
    ) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}
        self.path = path
        self.head = head
        self.number = head.generation
        self.first = head.first
        # One value, so that a reader in a thread never sees the end of one commit and the bytes of another.
        self._reach = (head.first, SEGMENT_HEAD.size)
        self.first_time_us = self.last_time_us = head.created_us
        self.has_ended = False
        self.is_readable = is_readable
        self.is_gone = False
        """Whether its file vanished while the node ran."""
        self.is_timed = True
        """Whether the times of its messages are known; if not, a seal will find them."""
        self.summary: Summary | None = None
        self.index: SparseIndex | None = None
        self.gaps: dict[int, SegmentGap] = {}
        self.topics: dict[str, int] = {}
        self.publishers: dict[str, int] = {}
        """Bytes of each, as far as they are counted by name."""
        # Both belong to the thread that writes.
        self.file: DiskFile | None = None
        self.index_file: DiskFile | None = None

    @property
    def end(self) -> int:
        return self._reach[0]

    @end.setter
    def end(self, end: int) -> None:
        self._reach = (end, self._reach[1])

    @property
    def reach(self) -> tuple[int, int]:
        """End and bytes, both of one commit."""
        return self._reach

    @property
    def size_bytes(self) -> int:
        return self._reach[1]

    @size_bytes.setter
    def size_bytes(self, size_bytes: int) -> None:
        self._reach = (self._reach[0], size_bytes)

    def grow(self, end: int, more_bytes: int) -> None:
        """Readers see it from now on."""
        self._reach = (end, self._reach[1] + more_bytes)

    def know_times(self, first_time_us: int, last_time_us: int) -> None:
        self.first_time_us, self.last_time_us = first_time_us, last_time_us
        self.is_timed = True

    @property
    def lost(self) -> int:
        """Messages that are known to be damaged."""
        noted = sum(gap.upto - gap.first for gap in list(self.gaps.values()))
        sealed = self.end - self.first - self.summary.count if self.summary else 0
        return max(noted, sealed)

    def vanished(self) -> int:
        """Somebody took the file while the node runs; how many messages went with it."""
        self.is_gone, self.is_readable = True, False
        before, end = self.lost, self.end
        self._note_gone()
        return end - self.first - before

    def finish(self) -> None:
        """It grows no more."""
        self.has_ended = True
        if self.is_gone:
            # A commit that was under way when the file vanished is gone too.
            self._note_gone()

    def _note_gone(self) -> None:
        end, limit = self._reach
        self.gaps = {self.first: SegmentGap(self.first, end, limit)} if end > self.first else {}
        if self.has_ended:
            # There is nothing to seal any more; with a summary what follows is sealed, and retention goes on.
            head, times = self.head, (self.first_time_us, self.last_time_us)
            self.summary = Summary(
                head.seed,
                head.first,
                end,
                0,
                Digest.empty(),
                *times,
                SEGMENT_HEAD.size,
                self.publishers,
            )

    # --- writing, in a thread ---------------------------------------------------------------------

    def create(self) -> None:
        """Begins the file. Durable in any case: it happens rarely, and offsets count from its head."""
        self._disk.make_folders(parent(self.path))
        self.file = self._disk.open(self.path + SEGMENT, create=True)
        # A crash may have left it with a part of a head, and what described an earlier one.
        self.file.truncate(0)
        for ending in (INDEX, DENSE, TOPICS, SEAL, SNAPSHOT):
            if self._disk.exists(self.path + ending):
                self._disk.remove(self.path + ending)
        self.file.append(bytes(self.head))
        self.file.sync()
        self._disk.sync_folder(parent(self.path))
        self.index_file = self._disk.open(self.path + INDEX, create=True)

    def close(self) -> None:
        for file in (self.file, self.index_file):
            if file is not None:
                file.close()
        self.file = self.index_file = None

    def remove(self) -> None:
        self.close()
        for ending in (SEGMENT, INDEX, DENSE, TOPICS, SEAL, SNAPSHOT):
            if self._disk.exists(self.path + ending):
                self._disk.remove(self.path + ending)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int) -> Block | Gap:
        """What follows, from the disk: at least one message."""
        assert self.first <= offset < self.end, f"{offset} is not in {self.path}"
        try:
            file = self._disk.open(self.path + SEGMENT, create=False)
        except FileNotFoundError:
            # Retention was faster than this reader, or somebody took the file.
            return Gap(offset, self.end, DAMAGE if self.is_gone else RETENTION)
        try:
            return self._read(file, offset, bytes_max)
        finally:
            file.close()

    def _read(self, file: DiskFile, offset: int, bytes_max: int) -> Block | Gap:
        if not self.is_readable:
            return Gap(offset, self.end, DAMAGE)
        for gap in list(self.gaps.values()):
            if gap.first <= offset < gap.upto:
                return Gap(offset, gap.upto, DAMAGE)
        (end, limit), seed = self._reach, self.head.seed
        sealed = self._sealed_piece(file, offset, bytes_max) if self.summary is not None else None
        if sealed is not None:
            return _block_from(sealed, offset)
        at, position, is_sure = self._entry_of(file, offset)
        while True:
            piece = read_frames(file, position, limit, at, seed, bytes_max)
            if piece.upto > offset:
                self._remember(piece.upto, position + len(piece.data))
                return _block_from(piece, offset)
            if len(piece.positions):
                at, position, is_sure = piece.upto, position + len(piece.data), True
            elif not is_sure:
                # The index points at something else, or at damage: look at everything once.
                self._build_index(file)
                at, position, is_sure = self._entry_of(file, offset)
            else:
                gap = self.note(next_whole(file, position, limit, at, seed), end, limit)
                if offset < gap.upto:
                    return Gap(offset, gap.upto, DAMAGE)
                at, position = gap.upto, gap.position

    def _sealed_piece(self, file: DiskFile, offset: int, bytes_max: int) -> Piece | None:
        """What follows, by the dense index; None if the index is not right."""
        places = self._dense(offset, STREAM_DENSE_READ + 1)
        if len(places) == self.end - offset:
            places = np.append(places, self.size_bytes)
        is_sound = (
            len(places) > 1 and SEGMENT_HEAD.size <= places[0] < places[-1] <= self.size_bytes
        )
        if not is_sound or (np.diff(places) <= 0).any():
            return None
        return piece_of(file, next(cut(offset, places, bytes_max)), self.head.seed)

    def _dense(self, offset: int, wanted: int) -> Numbers:
        """Where that message and the next ones begin, as the dense index says."""
        number, count = offset - self.first, self.end - self.first
        return dense_positions(self._disk, self.path + DENSE, number, wanted, count)

    def _entry_of(self, file: DiskFile, offset: int) -> IndexEntry:
        """The nearest known place that is not behind that message."""
        known = self._places.get(offset)
        if known is not None:
            return IndexEntry(offset, known, True)
        index = self.index
        if index is None:
            (position,) = self._dense(offset, 1).tolist() or (0,)
            if SEGMENT_HEAD.size <= position < self.size_bytes:
                return IndexEntry(offset, position, False)
            index = self._build_index(file)
        best = IndexEntry(self.first, SEGMENT_HEAD.size, True)
        for gap in list(self.gaps.values()):
            if gap.upto <= offset and (gap.upto, gap.position) >= best[:2]:
                best = IndexEntry(gap.upto, gap.position, True)
        indexed = index.entry_of(offset)
        return indexed if indexed is not None and indexed[:2] > best[:2] else best

    def _remember(self, offset: int, position: int) -> None:
        """Where a reader goes on: most ask for what follows next."""
        if len(self._places) >= STREAM_DENSE_CACHED_MAX:
            self._places = {}
        self._places[offset] = position

    def note(self, gap: SegmentGap, end: int, limit: int) -> SegmentGap:
        """Damage, with its end: found many times, counted once."""
        if gap.upto < 0:
            gap = SegmentGap(gap.first, end, limit)
        return self.gaps.setdefault(gap.first, gap)

    def walk(self, file: DiskFile) -> Iterator[Piece | SegmentGap]:
        """All that is committed; every hole has its end, and is noted."""
        end, limit = self._reach
        upto = self.first
        index = self.index or self._loaded_index()
        entries = index.entries() if index is not None else b""
        span = Span(self.first, end, limit)
        for found in walk_by_index(file, entries, span, self.head.seed):
            piece = self.note(found, end, limit) if isinstance(found, SegmentGap) else found
            upto = piece.upto
            yield piece
        if upto < end:
            yield self.note(SegmentGap(upto, -1, limit), end, limit)

    def _build_index(self, file: DiskFile) -> SparseIndex:
        """Makes the indexes anew from the frames."""
        with self._lock:
            index = self.index
            if index is not None and index.is_sure:
                return index
            build = IndexBuild(self.first)
            for found in self.walk(file):
                if isinstance(found, Piece):
                    build.add(found)
                else:
                    build.skip(found)
            if self.summary is not None:
                self._disk.write_whole(self.path + DENSE, build.dense(self.end))
                self._disk.write_whole(self.path + INDEX, build.sparse.entries())
            self.index = build.sparse
            return build.sparse

    # --- by time ----------------------------------------------------------------------------------

    def offset_at(self, time_us: int) -> int:
        """The first message that is not older; the end if all are."""
        index = self.index or self._loaded_index()
        entry = index.before_time(time_us) if index is not None else None
        offset = entry.offset if entry is not None else self.first
        while offset < self.end:
            found = self.read(offset, STREAM_SEEK_BYTES)
            if isinstance(found, Gap):
                offset = found.upto
                continue
            times = times_of(found.data, found.positions)
            if entry is not None and not entry.is_sure and times[0] >= time_us:
                # The entry said that this one is older: start where nothing can be wrong.
                entry, offset = None, self.first
                continue
            number = int(np.searchsorted(times, time_us))
            if number < len(times):
                return found.first + number
            entry, offset = None, found.upto
        return self.end

    def _loaded_index(self) -> SparseIndex | None:
        try:
            data = read_all(self._disk, self.path + INDEX)
        except OSError:
            return None  # it can be made anew, and there are other ways to the frames
        return SparseIndex.loaded(data, self.first, self.end, self.size_bytes)


def _block_from(piece: Piece, offset: int) -> Block:
    skip = offset - piece.first
    if not skip:
        return block_of(offset, piece.data, piece.positions)
    begin = int(piece.positions[skip])
    return block_of(offset, piece.data[begin:], piece.positions[skip:] - begin)
