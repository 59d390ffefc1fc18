"""Room: journal/streams. What goes into a node's streams, and in what batches."""

from typing import NamedTuple, Protocol

import msgspec

from moorline.journal.streams.retained import RetainedPart
from moorline.journal.streams.shard import Part
from moorline.limits import MIB, STREAM_SMALL_BYTES_MAX


class StreamOptions(msgspec.Struct, frozen=True):
    """`sync` is that a commit is durable; 0 for a retention is that it has no bound."""

    sync: bool = True
    shards: int = 8
    generation_bytes_max: int = 256 * MIB
    generation_s: int = 3_600
    retention_s: int = 7 * 86_400
    retention_bytes: int = 0


class PlainRecord(Protocol):
    """A message that is published with nothing but a topic and a body."""

    @property
    def topic(self) -> str: ...

    @property
    def body(self) -> bytes: ...


class StreamBatch(NamedTuple):
    """What one commit stores: so many messages."""

    parts: list[Part]
    retained: RetainedPart | None
    message_count: int

    @property
    def is_small(self) -> bool:
        """Nothing but a few bytes for files that are open."""
        return self.retained is None and all(
            part.ended is None
            and part.snapshot is None
            and len(part.block.data) <= STREAM_SMALL_BYTES_MAX
            for part in self.parts
        )
