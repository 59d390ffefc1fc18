"""Room: topics. Gives the files of this node's streams to readers that decode them themselves."""

import asyncio

from moorline.access.demands import Demands
from moorline.access.guard import Declarations, demand_everything, heavy, needs_everything
from moorline.catalog import Catalog
from moorline.core.access.right import SUBSCRIBE
from moorline.core.stream import RETENTION, SegmentPart
from moorline.errors import BadStart
from moorline.ids import text_of
from moorline.journal.streams.segment_file import DiskSegment
from moorline.limits import NODE_GONE_MS, STREAM_FILE_BYTES_MAX, STREAM_READ_BYTES_MAX
from moorline.net.session import Session
from moorline.net.turns import Turns
from moorline.topics.browsing import Browsing
from moorline.topics.filtered_reads import FilteredReads, lists_or_reads
from moorline.topics.paths import TOPICS
from moorline.topics.streams import LocalStreams
from moorline.wire.message import Answer
from moorline.wire.stream_file import (
    ClusterDescribed,
    DescribeCluster,
    ReadStreamFile,
    StreamFileRead,
)

BROKER = "broker"


class StreamFiles:
    """Reads and sends; what is in the bytes is the reader's to check."""

    def __init__(
        self, streams: LocalStreams, catalog: Catalog, demands: Demands | None = None
    ) -> None:
        self._demands = demands or Demands()
        self._streams = streams
        self._catalog = catalog
        self.filtered = FilteredReads(streams, self._demands)
        self.browsing = Browsing(streams, self._demands)
        self._turns = Turns()

    def declared(self) -> Declarations:
        read = self._demands.telling(self._read)
        return {
            DescribeCluster: heavy(lists_or_reads(self._turns.spawned(self._describe))),
            # Frames of all topics, as they are stored; some of them are for `ReadMatching`.
            ReadStreamFile: heavy(needs_everything(SUBSCRIBE, TOPICS, self._turns.spawned(read))),
            **self.filtered.declared(self._turns),
            **self.browsing.declared(self._turns),
        }

    def close(self) -> None:
        self._turns.close()

    async def _describe(self, session: Session, call: DescribeCluster) -> Answer:  # noqa: ARG002
        alive = await self._catalog.live_nodes(NODE_GONE_MS)
        rows = [row for row in await self._catalog.nodes() if BROKER in row.roles]
        nodes = [(row.home, row.addresses, row.home in alive) for row in rows]
        ids = {row.home: text_of(row.id) for row in rows}
        return ClusterDescribed(call.call, self._streams.node, nodes, ids)

    async def _read(self, session: Session, call: ReadStreamFile) -> Answer:
        if call.position > STREAM_FILE_BYTES_MAX:
            raise BadStart(
                f"{call.position} is no place in a file of a stream: none has more than "
                f"{STREAM_FILE_BYTES_MAX} bytes"
            )
        store = self._streams.store
        # Both on the loop, so that they speak of the same commit.
        extent = store.extent(call.shard, call.generation)
        segment = store.segment(call.shard, call.generation)
        if extent is None or segment is None:
            return StreamFileRead(call.call, b"", 0, 0, 0, True, RETENTION)
        length = min(call.bytes_max, STREAM_READ_BYTES_MAX)
        data = await asyncio.to_thread(_bytes, segment, call.part, call.position, length)
        # Its turn and the disk may have been long in coming: the right is asked for once more.
        demand_everything(session.rights, SUBSCRIBE, TOPICS)
        return StreamFileRead(
            call.call,
            data or b"",
            extent.first,
            extent.end,
            segment.size_bytes,
            extent.sealed,
            RETENTION if data is None else "",
        )


def _bytes(segment: DiskSegment, part: SegmentPart, position: int, length: int) -> bytes | None:
    """None if there is no such file: retention was faster."""
    try:
        return segment.part(part, position, length)
    except FileNotFoundError:
        return None
    finally:
        segment.close()
