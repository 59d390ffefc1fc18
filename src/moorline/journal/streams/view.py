"""Room: journal/streams. What can be seen of a node's streams: which there are, what they hold, and their
messages.

The loop asks; what reads the disk says so, and is for a thread.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from moorline.core.frames.block import Block
from moorline.core.frames.picked import Picked
from moorline.core.sets.digest import Digest
from moorline.core.stream import Extent, Gap, Stream
from moorline.journal.disk import Disk
from moorline.journal.streams.deleted import DeletedTopics
from moorline.journal.streams.generation import SEAL, Generation
from moorline.journal.streams.match_count import count_in_blocks, count_in_file, counted
from moorline.journal.streams.seal import Seal, read_seal
from moorline.journal.streams.segment import SegmentGap
from moorline.journal.streams.segment_file import DiskSegment
from moorline.journal.streams.shard import ShardLog
from moorline.journal.streams.source import Counted
from moorline.journal.streams.tail import ReadNow
from moorline.journal.streams.topic_picks import KnownCandidates, Wish, pick
from moorline.limits import COUNTED_BYTES_MAX


class StreamView:
    """The shards of a store, by their numbers."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._shards: dict[int, ShardLog] = {}
        self._candidates = KnownCandidates()
        self.deleted = DeletedTopics(disk)
        """Topics that readers here, and at other nodes, do not see any more."""
        self._told: set[tuple[int, int, int, int]] = set()
        """Damage that was told of already."""

    # --- what is there ----------------------------------------------------------------------------

    @property
    def stream_count(self) -> int:
        """How many generations there are."""
        return sum(len(shard.generations) for shard in self._shards.values())

    def extents(self, shards: Iterable[int] | None = None) -> list[Extent]:
        """All generations that are kept of all shards, or of these; of each shard the oldest first."""
        wanted = self._shards if shards is None else sorted(set(shards) & self._shards.keys())
        return [extent for number in wanted for extent in self._shards[number].extents()]

    def extents_of(self, shard: int) -> tuple[Extent, ...]:
        """All generations that are kept of one shard, the oldest first."""
        found = self._shards.get(shard)
        return found.extents() if found is not None else ()

    @property
    def shard_numbers(self) -> list[int]:
        """Of all shards that have a generation."""
        return [number for number, shard in self._shards.items() if shard.generations]

    def page(self, after: tuple[int, int], count: int) -> list[Extent]:
        """Of all generations those behind (shard, generation): at most so many, or all for 0."""
        found: list[Extent] = []
        for number in sorted(self._shards):
            shard = self._shards[number]
            if number < after[0] or (count and len(found) >= count):
                continue
            known = shard.generations
            if number == after[0]:
                known = [one for one in known if one.number > after[1]]
            room = count - len(found) if count else len(known)
            found += [shard.extent_of(generation) for generation in known[:room]]
        return found

    def bounds(self) -> list[tuple[int, int, int]]:
        """(shard, first, end) of every shard that has a generation."""
        return [
            (number, shard.first, shard.end)
            for number, shard in sorted(self._shards.items())
            if shard.generations
        ]

    def since(self, shard: int, offset: int, count: int) -> list[Extent]:
        """Of a shard the generations that end behind an offset, the oldest first, at most so many.

        Nobody looks at those before: a shard may keep very many.
        """
        found = self._shards.get(shard)
        if found is None:
            return []
        at = bisect_right(found.generations, offset, key=lambda generation: generation.end)
        return [found.extent_of(generation) for generation in found.generations[at : at + count]]

    def extent(self, shard: int, generation: int) -> Extent | None:
        found = self._find(shard, generation)
        return self._shards[shard].extent_of(found) if found is not None else None

    def end(self, shard: int) -> int:
        return self._shards[shard].end

    def first(self, shard: int) -> int:
        """Everything below is gone; 0 for a shard that was never there."""
        found = self._shards.get(shard)
        return found.first if found is not None else 0

    def newest_generations(self) -> dict[int, int]:
        """The generation that each shard has come to."""
        return {
            number: shard.generations[-1].number
            for number, shard in self._shards.items()
            if shard.generations
        }

    def measures(self, shard: int, generation: int) -> tuple[int, int, int, Digest | None]:
        """Bytes, time of the first and of the last message, and the digest of a sealed one."""
        found = self._find(shard, generation)
        if found is None:
            return 0, 0, 0, None
        digest = found.summary.digest if found.summary is not None else None
        return found.size_bytes, found.first_time_us, found.last_time_us, digest

    @property
    def disk(self) -> Disk:
        return self._disk

    def generation_of(self, shard: int, offset: int) -> int:
        """The generation that has the message; the oldest kept, or the newest, if none has it."""
        return self._shards[shard].generation_of(offset)

    def topics(self, shard: int, generation: int) -> dict[str, int]:
        """Its topics with the counts of their messages; `""` stands for those beyond the bound."""
        found = self._find(shard, generation)
        if found is None:
            return {}
        if found.summary is None:
            counts = dict(found.topics)
        else:
            seal = self.seal_of(shard, generation)
            counts = seal.topics if seal is not None else {}
        return self.deleted.left(shard, generation, found.end, counts)

    def topics_are_in_memory(self, shard: int, generation: int) -> bool:
        """Whether `topics` needs no disk; if it does, ask in a thread."""
        found = self._find(shard, generation)
        return found is None or found.summary is None

    def seal_of(self, shard: int, generation: int) -> Seal | None:
        """What is known of a sealed generation; None as long as it has no seal."""
        found = self._find(shard, generation)
        if found is None or found.summary is None:
            return None
        read = read_seal(self._disk, found.path + SEAL)
        return Seal.of(*read) if read is not None else None

    @property
    def lost_messages(self) -> int:
        """Messages that are known to be damaged."""
        return sum(self.lost_by_stream())

    def lost_by_stream(self) -> Iterator[int]:
        """The same in parts: of what is gone for good, and of each stream that there is."""
        for shard in list(self._shards.values()):
            yield shard.lost_before
            for generation in list(shard.generations):
                yield generation.lost

    def all_generations(self) -> list[tuple[ShardLog, Generation]]:
        return [
            (shard, generation)
            for shard in self._shards.values()
            for generation in shard.generations
        ]

    def new_damage(self) -> list[tuple[Stream, SegmentGap]]:
        """Places that were found damaged since the last call."""
        found = []
        known = set()
        for shard in self._shards.values():
            for generation in shard.generations:
                for gap in list(generation.gaps.values()):
                    place = (shard.number, generation.number, gap.first, gap.upto)
                    known.add(place)
                    if place not in self._told:
                        found.append((shard.extent_of(generation).stream, gap))
        # What retention took is told no more, and need not be remembered.
        self._told = known
        return found

    def _find(self, shard: int, generation: int) -> Generation | None:
        found = self._shards.get(shard)
        return found.find(generation) if found is not None else None

    # --- reading ----------------------------------------------------------------------------------

    def read(self, shard: int, generation: int, offset: int, bytes_max: int) -> Block | Gap | None:
        """What follows the offset in that generation; None at its end."""
        found = self._shards[shard].read(generation, offset, bytes_max)
        return self.deleted.hide(shard, found) if isinstance(found, Block) else found

    def read_now(self, shard: int, generation: int, offset: int, bytes_max: int) -> ReadNow | None:
        """As `read`, from memory; None where the disk must be read, which is for a thread."""
        now = self._shards[shard].read_now(generation, offset, bytes_max)
        if now is None or not isinstance(now.found, Block):
            return now
        block = self.deleted.hide(shard, now.found)
        return now if block is now.found else ReadNow(block, now.end)

    def pick(
        self, shard: int, generation: int, offset: int, bytes_max: int, wish: Wish
    ) -> Picked | None:
        """What of a sealed generation may match; None if it is to be read whole. Reads the disk."""
        found = self._find(shard, generation)
        if found is None or found.summary is None or not found.first <= offset < found.end:
            return None
        segment = DiskSegment(self._disk, found.path, found.head, found.end, found.size_bytes)
        try:
            offsets = self._candidates.of(segment, segment.topics_at, wish.filters)
            if offsets is None:
                return None
            upto = min(wish.upto, found.end)
            picked = pick(segment, offsets, offset, upto, wish.messages_max, bytes_max)
            return self.deleted.hide(shard, picked) if picked is not None else None
        except FileNotFoundError:
            return None  # retention was faster, or an older program has sealed it
        finally:
            segment.close()

    def count_matching(
        self,
        shard: int,
        extents: Sequence[Extent],
        offset: int,
        filters: Sequence[str],
        count_max: int,
        bytes_max: int = COUNTED_BYTES_MAX,
    ) -> Counted:
        """How far so many messages go in these streams of a shard that a filter may take. Reads the disk."""
        log = self._shards[shard]

        def part(extent: Extent, at: int, left: int) -> Counted:
            number = extent.stream.generation
            found = log.find(number)
            listed = None
            if found is not None and found.summary is not None:
                segment = DiskSegment(
                    self._disk, found.path, found.head, found.end, found.size_bytes
                )
                try:
                    listed = count_in_file(segment, segment.topics_at, filters, at, left)
                finally:
                    segment.close()
            read = partial(log.read, number)
            return listed or count_in_blocks(read, filters, at, extent.end, left, bytes_max)

        return counted(extents, offset, count_max, part)

    def segment(self, shard: int, generation: int) -> DiskSegment | None:
        """Its files as they are now, for whoever decodes them; None if it is gone. Opens nothing yet."""
        found = self._find(shard, generation)
        if found is None:
            return None
        # Both of the same commit.
        end, size_bytes = found.reach
        return DiskSegment(self._disk, found.path, found.head, end, size_bytes)

    def offset_at(self, shard: int, time_us: int) -> int:
        """The first message that is not older; the end if all are. Reads the disk."""
        return self._shards[shard].offset_at(time_us)
