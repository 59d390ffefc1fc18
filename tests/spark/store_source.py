"""A node's own streams as any reader of streams asks for them."""

from collections.abc import Mapping, Sequence

from moorline.core.frames.block import Block
from moorline.core.stream import Extent, Gap, Shard, Stream
from moorline.journal.streams.segment_file import DiskSegment
from moorline.journal.streams.source import Counted, DescribedShards
from moorline.journal.streams.view import StreamView


class StoreStreams:
    """A `StreamSource` over the store of a node that runs: of a stream that grows, what is committed."""

    def __init__(self, store: StreamView, home: str) -> None:
        self._store = store
        self._home = home

    def described(self, since: Mapping[Shard, int]) -> DescribedShards:
        bounds = {
            Shard(self._home, number): (first, end) for number, first, end in self._store.bounds()
        }
        wanted = {shard: since[shard] for shard in bounds if shard in since}
        return DescribedShards(
            bounds,
            {
                shard: found
                for shard, at in wanted.items()
                if (found := self._store.since(shard.number, at, self._store.stream_count))
            },
        )

    def extents(self) -> list[Extent]:
        return self._store.extents()

    def offsets_at(self, time_us: int) -> dict[Shard, int]:
        return {
            Shard(self._home, number): self._store.offset_at(number, time_us)
            for number in self._store.shard_numbers
        }

    def count_matching(
        self, since: Mapping[Shard, int], filters: Sequence[str], count_max: Mapping[Shard, int]
    ) -> dict[Shard, Counted]:
        found = {}
        for shard, at in since.items():
            extents = self._store.since(shard.number, at, self._store.stream_count)
            found[shard] = self._store.count_matching(
                shard.number, extents, at, filters, count_max[shard]
            )
        return found

    def read(self, stream: Stream, offset: int, bytes_max: int) -> Block | Gap | None:
        return self._store.read(stream.shard_number, stream.generation, offset, bytes_max)

    def segment(
        self,
        stream: Stream,
        addresses: tuple[str, ...] = (),  # noqa: ARG002
    ) -> DiskSegment | None:
        return self._store.segment(stream.shard_number, stream.generation)

    def close(self) -> None:
        """The store is its node's."""
