"""Room: journal/streams. The streams of a data folder, or of a copy of one, without a server.

Nothing is written and nothing is locked: the node that owns the folder may run. Of the stream that grows
all whole frames count, and they are synced before anyone relies on them; a torn end is left out. What only
the log of small commits has counts too, as it would behind a start.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from moorline.core.frames.block import Block
from moorline.core.frames.byte_columns import PADDING_BYTES
from moorline.core.stream import DAMAGE, RETENTION, Extent, Gap, Shard, Stream
from moorline.errors import FolderUnusable
from moorline.journal.disk import read_all
from moorline.journal.overlay import OverlayDisk
from moorline.journal.read_only_disk import ReadOnlyDisk, ReadOnlyFile
from moorline.journal.streams.generation import INDEX, SEAL, SEGMENT, Generation
from moorline.journal.streams.layout import folder_of, path_of
from moorline.journal.streams.match_count import (
    count_in_blocks,
    count_in_file,
    counted,
    look_of_each,
)
from moorline.journal.streams.patched_disk import PatchedDisk
from moorline.journal.streams.seal import Summary, read_summary
from moorline.journal.streams.segment import (
    SEGMENT_HEAD,
    Piece,
    SegmentHead,
    read_frames,
    read_head,
    walk,
)
from moorline.journal.streams.segment_file import DiskSegment
from moorline.journal.streams.segment_index import ENTRY_BYTES
from moorline.journal.streams.source import Counted, DescribedShards, ShardBounds

log = logging.getLogger("moorline.spark")  # as users filter it

STREAMS = "streams"
LAYOUT = "layout"
NOTE = "node.json"
NODE_ID = "node.id"


class Buffer:
    """One for all blocks of a task: whoever decodes a block copies, and is done before the next."""

    def __init__(self) -> None:
        self._data = bytearray()

    def of(self, length: int) -> bytearray:
        if len(self._data) < length:
            # Blocks differ by a frame or so: the next one shall fit as well.
            self._data = bytearray(1 << (length - 1).bit_length())
        return self._data


class FolderSegment(DiskSegment):
    """A segment of a folder; its blocks share a buffer."""

    def __init__(
        self,
        disk: ReadOnlyDisk,
        path: str,
        head: SegmentHead,
        end: int,
        size_bytes: int,
        buffer: Buffer,
    ) -> None:
        super().__init__(disk, path, head, end, size_bytes, str(disk.where(path + SEGMENT)))
        self.file("segment")  # while it is there
        self._buffer = buffer

    def begin(self, position: int, length: int) -> Callable[[], bytearray]:
        return lambda: self._read(position, length)

    def _read(self, position: int, length: int) -> bytearray:
        file = self.file("segment")
        assert isinstance(file, ReadOnlyFile)
        data = self._buffer.of(length + PADDING_BYTES)
        count = file.read_into(memoryview(data)[:length], position)
        return data if count == length else bytearray()


class FolderStreams:
    """All streams of a folder, as they are now."""

    def __init__(self, path: str, home: str = "") -> None:
        root = Path(path)
        streams = root / STREAMS if (root / STREAMS).is_dir() else root
        if not (streams / LAYOUT).is_file():
            raise FolderUnusable(f"path: {root.absolute()} is no data folder: it has no streams")
        self._root = root
        self._disk = PatchedDisk(streams)
        self.home = home or _home_of(root, streams)
        self._buffer = Buffer()
        self._ends: dict[Stream, tuple[int, int, int]] = {}
        """Of streams that grow: the seed, and the message and place up to which frames were whole."""
        self._last: tuple[Stream, Generation] | None = None
        """What was read last: most readers go on there."""

    def id(self) -> str:
        """The id of the data folder that they are in; empty where only its streams were copied."""
        for place in (self._root, self._root.parent):
            with contextlib.suppress(OSError):
                return (place / NODE_ID).read_text("ascii", errors="replace").strip()
        return ""

    def close(self) -> None:
        """Nothing stays open."""

    def silent(self) -> list[str]:
        return []

    def addresses(self, node: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    # --- what is there ----------------------------------------------------------------------------

    def described(self, since: Mapping[Shard, int]) -> DescribedShards:
        """All shards, and of those that are named the streams behind that offset; no other file is opened."""
        bounds: ShardBounds = {}
        shard_extents: dict[Shard, list[Extent]] = {}
        for number in self._shards():
            shard = Shard(self.home, number)
            known = self._behind(number, since.get(shard))
            if known:
                oldest = next(self._heads(number), None)  # None: retention was faster
                first = known[0].first if oldest is None else min(oldest.first, known[0].first)
                bounds[shard] = first, known[-1].end
            if known and shard in since:
                shard_extents[shard] = [extent for extent in known if extent.end > since[shard]]
        return DescribedShards(bounds, shard_extents)

    def _behind(self, shard: int, offset: int | None) -> list[Extent]:
        """From the newest stream back to the one that has the offset; without one, the newest alone."""
        found: list[Extent] = []
        following: SegmentHead | None = None
        for head in self._heads(shard, newest_first=True):
            with contextlib.suppress(FileNotFoundError):
                end, _, sealed = self._end(head, following, is_planning=True)
                stream = Stream(self.home, shard, head.generation)
                found.append(Extent(stream, head.first, end, sealed))
            following = head
            if found and (offset is None or head.first <= offset):
                break
        found.reverse()
        return found

    def extents(self) -> list[Extent]:
        return [
            Extent(Stream(self.home, shard, head.generation), head.first, end, sealed)
            for shard, head, end, _, sealed in self._found()
        ]

    def _shards(self) -> list[int]:
        return [int(name) for name in self._disk.list_folder("") if name.isdecimal()]

    def _found(self) -> Iterator[tuple[int, SegmentHead, int, int, bool]]:
        """(shard, head, end, bytes, is sealed), in order."""
        for shard in self._shards():
            heads = list(self._heads(shard))
            for place, head in enumerate(heads):
                following = heads[place + 1] if place + 1 < len(heads) else None
                with contextlib.suppress(FileNotFoundError):  # retention was faster
                    end, size, sealed = self._end(head, following, is_planning=True)
                    yield shard, head, end, size, sealed

    def _heads(self, shard: int, *, newest_first: bool = False) -> Iterator[SegmentHead]:
        """In order; each is read when it is asked for."""
        stems = [
            name.removesuffix(SEGMENT)
            for name in self._disk.list_folder(folder_of(shard))
            if name.endswith(SEGMENT)
        ]
        numbers = sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=newest_first)
        for number in numbers:
            with contextlib.suppress(FileNotFoundError):
                head = self._head(shard, number)
                if head is not None:
                    yield head

    def _head(self, shard: int, generation: int) -> SegmentHead | None:
        """None for one that is being made, or whose head is damaged: then its messages are missing."""
        file = self._disk.open(path_of(folder_of(shard), generation) + SEGMENT, create=False)
        try:
            head = read_head(file)
        finally:
            file.close()
        is_own = head is not None and (head.shard, head.generation) == (shard, generation)
        if not is_own:
            log.warning("a segment without a head", extra={"shard": shard, "segment": generation})
        return head if is_own else None

    def _end(
        self, head: SegmentHead, following: SegmentHead | None, *, is_planning: bool
    ) -> tuple[int, int, bool]:
        """Its end, its bytes, and whether it is sealed."""
        summary = self._summary(head)
        if summary is not None:
            return summary.end, summary.bytes, True
        end, size = self._grown(head, is_planning=is_planning)
        has_ended = following is not None
        if following is not None and following.generation == head.generation + 1:
            end = following.first
        return end, size, has_ended

    def _summary(self, head: SegmentHead) -> Summary | None:
        summary = read_summary(self._disk, self._path(head) + SEAL)
        is_own = summary is not None and (summary.seed, summary.first) == (head.seed, head.first)
        return summary if is_own else None

    def _path(self, head: SegmentHead) -> str:
        return path_of(folder_of(head.shard), head.generation)

    def _grown(self, head: SegmentHead, *, is_planning: bool) -> tuple[int, int]:
        """How far a stream without a seal is whole, and the bytes up to there.

        Whoever plans relies on the end: it is synced. A task reads what was planned.
        """
        # What is sealed is synced where it is: only here a log may have more.
        self._disk.look(again=is_planning)
        stream = Stream(self.home, head.shard, head.generation)
        seed, at, position = self._ends.get(stream, (0, 0, 0))
        file = self._disk.open(self._path(head) + SEGMENT, create=False)
        try:
            limit = file.size()
            if seed != head.seed or position > limit:
                at, position = head.first, SEGMENT_HEAD.size
            at, position = self._by_index(head, file, (at, position), limit)
            for found in walk(file, position, limit, at, head.seed):
                if isinstance(found, Piece):
                    at, position = found.upto, found.position + len(found.data)
                elif found.upto >= 0:
                    at, position = found.upto, found.position
            if is_planning and (at, position) != self._ends.get(stream, (0, 0, 0))[1:]:
                # A read-only copy may be where nothing can be synced, and need not be.
                with contextlib.suppress(OSError):
                    file.sync()
        finally:
            file.close()
        self._ends[stream] = head.seed, at, position
        return at, position

    def _by_index(
        self, head: SegmentHead, file: object, known: tuple[int, int], limit: int
    ) -> tuple[int, int]:
        """The last entry of the sparse index that is true, if it is behind what is known."""
        assert isinstance(file, ReadOnlyFile)
        data = read_all(self._disk, self._path(head) + INDEX)
        table = np.frombuffer(data, "<i8", len(data) // ENTRY_BYTES * 3).reshape(-1, 3)
        # A torn entry or one from before a crash may be last: a few are tried.
        for position, at, _ in table[:-8:-1].tolist():
            if at <= known[0] or not known[1] < position < limit:
                continue
            if len(read_frames(file, position, limit, at, head.seed, 1).positions):
                return at, position
        return known

    # --- places and files -------------------------------------------------------------------------

    def offsets_at(self, time_us: int) -> dict[Shard, int]:
        """The first message of each shard that is not older; the end if all are."""
        found: dict[Shard, int] = {}
        # What a look repairs, such as a lost index, it repairs in memory.
        overlay = OverlayDisk(self._disk)
        for number, head, end, size, _ in self._found():
            shard = Shard(self.home, number)
            if found.get(shard, -1) >= 0:
                continue
            generation = Generation(overlay, self._path(head), head)
            generation.end, generation.size_bytes = end, size
            offset = generation.offset_at(time_us) if end > head.first else end
            # Negative: the end so far, and perhaps not the last one.
            found[shard] = offset if offset < end else -end - 1
        return {shard: at if at >= 0 else -at - 1 for shard, at in found.items()}

    def count_matching(
        self, since: Mapping[Shard, int], filters: Sequence[str], count_max: Mapping[Shard, int]
    ) -> dict[Shard, Counted]:
        def part(extent: Extent, at: int, left: int) -> Counted:
            listed = None
            segment = self.segment(extent.stream) if extent.sealed else None
            if segment is not None:
                try:
                    listed = count_in_file(segment, segment.topics_at, filters, at, left)
                finally:
                    segment.close()
            read = partial(self.read, extent.stream)
            return listed or count_in_blocks(read, filters, at, extent.end, left, look.bytes_max)

        look = look_of_each(len(since))
        shard_extents = self.described(since).shard_extents
        return {
            shard: counted(extents[: look.streams], since[shard], count_max[shard], part)
            for shard, extents in shard_extents.items()
        }

    def read(self, stream: Stream, offset: int, bytes_max: int) -> Block | Gap | None:
        """By the code that the node reads with, over a disk that it cannot change."""
        generation = self._generation(stream, offset)
        if generation is None or offset < generation.first:
            return self._read_elsewhere(stream, offset, bytes_max)
        return generation.read(offset, bytes_max) if offset < generation.end else None

    def _read_elsewhere(self, stream: Stream, offset: int, bytes_max: int) -> Block | Gap | None:
        """The stream is gone, or begins later in this copy: an offset is read where it is."""
        _, shard, generation = stream
        for extent in self._behind(shard, offset):
            if offset < extent.first:
                path = path_of(folder_of(shard), generation) + SEGMENT
                # A segment that is there and cannot be told what it is has lost its head.
                is_damaged = extent.stream != stream and self._disk.exists(path)
                return Gap(offset, extent.first, DAMAGE if is_damaged else RETENTION)
            if offset < extent.end:
                is_before = extent.stream.generation < generation
                return self.read(extent.stream, offset, bytes_max) if is_before else None
        return None

    def _generation(self, stream: Stream, offset: int) -> Generation | None:
        if self._last is not None and self._last[0] == stream and offset < self._last[1].end:
            return self._last[1]
        try:
            found = self._whole(stream, is_planning=False)
            if found is None:
                return None
            head, end, size, _ = found
            generation = Generation(OverlayDisk(self._disk), self._path(head), head)
            generation.end, generation.size_bytes = end, size
            generation.summary = self._summary(head)
        except FileNotFoundError:
            return None
        self._last = stream, generation
        return generation

    def _whole(
        self, stream: Stream, *, is_planning: bool
    ) -> tuple[SegmentHead, int, int, bool] | None:
        """Head, end, bytes and whether it is sealed, of one stream; None if it has no head."""
        head = self._head(stream.shard_number, stream.generation)
        if head is None:
            return None
        following = None
        with contextlib.suppress(FileNotFoundError):
            following = self._head(stream.shard_number, stream.generation + 1)
        return head, *self._end(head, following, is_planning=is_planning)

    def segment(
        self,
        stream: Stream,
        addresses: tuple[str, ...] = (),  # noqa: ARG002
    ) -> FolderSegment | None:
        """None if it is gone."""
        try:
            found = self._whole(stream, is_planning=False)
            if found is None:
                return None
            head, end, size, _ = found
            return FolderSegment(self._disk, self._path(head), head, end, size, self._buffer)
        except FileNotFoundError:
            return None


def _home_of(root: Path, streams: Path) -> str:
    """The home that they are of: as the layout has it, or the note of a running node."""
    words = (streams / LAYOUT).read_text(encoding="utf-8", errors="replace").split()
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    if fields.get("node"):
        return fields["node"]
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((root / NOTE).read_text(encoding="utf-8"))["home"])
    from moorline.config.settings import Config

    return Config().node
