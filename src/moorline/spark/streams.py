"""Room: spark. What readers of topics ask of the place where streams are."""

from typing import Protocol

from moorline.core.stream import Extent, Stream
from moorline.spark.folder_link import FolderSegment
from moorline.spark.node_link import NodeSegment
from moorline.spark.options import Offsets
from moorline.spark.planning import Described


class Streams(Protocol):
    """Where streams are: a folder, or nodes."""

    def described(self, since: Offsets) -> Described:
        """All shards, and of those that are named the streams that end behind that offset."""

    def extents(self) -> list[Extent]:
        """All streams of all shards: there may be very many."""

    def silent(self) -> list[str]:
        """Nodes whose streams are not known now."""

    def addresses(self, node: str) -> tuple[str, ...]: ...

    def offsets_at(self, time_us: int) -> dict[str, int]: ...

    def segment(
        self, stream: Stream, addresses: tuple[str, ...]
    ) -> FolderSegment | NodeSegment | None: ...

    def close(self) -> None: ...
