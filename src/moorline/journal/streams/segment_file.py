"""Room: journal/streams. The files of a segment on a disk, for readers that decode them themselves."""

from collections.abc import Callable
from typing import Final

from moorline.core.frames.byte_columns import PADDING_BYTES
from moorline.core.stream import SegmentPart
from moorline.journal.disk import Disk, DiskFile, read_all
from moorline.journal.streams.generation import DENSE, INDEX, SEGMENT, TOPICS
from moorline.journal.streams.segment import SegmentHead
from moorline.journal.streams.segment_index import DENSE_BYTES
from moorline.journal.streams.source import SegmentParts

ENDINGS: Final[dict[SegmentPart, str]] = {"segment": SEGMENT, "index": INDEX, "dense": DENSE}


class DiskSegment(SegmentParts):
    """A `SegmentFile` on any disk. Its files are opened when they are first read, and stay open."""

    def __init__(
        self, disk: Disk, path: str, head: SegmentHead, end: int, size_bytes: int, name: str = ""
    ) -> None:
        super().__init__(name or path + SEGMENT, head, end, size_bytes)
        self._disk = disk
        self._path = path
        self._open: dict[SegmentPart, DiskFile | None] = {}
        self._topics: DiskFile | None = None

    def part(self, part: SegmentPart, position: int, length: int) -> bytes:
        """`FileNotFoundError` if the segment itself is gone."""
        file = self.file(part)
        if file is None:
            return b""
        if part == "segment":
            # Behind it stands what is not committed yet.
            length = max(0, min(length, self.size_bytes - position))
        return file.read_at(position, length)

    def file(self, part: SegmentPart) -> DiskFile | None:
        """None of an index that was never made, or that is of another segment."""
        if part not in self._open:
            self._open[part] = self._opened(part)
        return self._open[part]

    def _opened(self, part: SegmentPart) -> DiskFile | None:
        try:
            file = self._disk.open(self._path + ENDINGS[part], create=False)
        except FileNotFoundError:
            if part == "segment":
                raise
            return None
        if part == "dense" and file.size() != (self.end - self.head.first) * DENSE_BYTES:
            file.close()
            return None
        return file

    def begin(self, position: int, length: int) -> Callable[[], bytearray]:
        """The kernel reads ahead by itself: there is nothing to begin."""

        def padded() -> bytearray:
            data = bytearray(self.read_at(position, length))
            data += bytes(PADDING_BYTES)
            return data

        return padded

    def topics_at(self, position: int, length: int) -> bytes:
        """Bytes of the lists of its topics; `FileNotFoundError` if it has none."""
        if self._topics is None:
            self._topics = self._disk.open(self._path + TOPICS, create=False)
        return self._topics.read_at(position, length)

    def index(self) -> bytes:
        return read_all(self._disk, self._path + INDEX)

    def close(self) -> None:
        for file in (*self._open.values(), self._topics):
            if file is not None:
                file.close()
        self._open.clear()
        self._topics = None
