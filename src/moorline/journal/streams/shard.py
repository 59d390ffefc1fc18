"""Room: journal/streams. One shard: the batch under way, the generations that are kept, and the newest
blocks.

The loop owns it. `write` and `sync` run in a thread, on a part that the loop has put together and does
not touch any more; readers see the part when it is committed.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from moorline.core.frames.block import Block, part_of
from moorline.core.sets.digest import Digest
from moorline.core.stream import RETENTION, Extent, Gap, Stream
from moorline.journal.disk import Disk
from moorline.journal.streams.dropped import Dropped
from moorline.journal.streams.framing import (
    Contents,
    Run,
    block_of,
    small_block,
    small_piece,
    time_of,
)
from moorline.journal.streams.generation import SNAPSHOT, Generation
from moorline.journal.streams.layout import folder_of, path_of
from moorline.journal.streams.manifest import Listed, add_lines, begun, reached, write_manifest
from moorline.journal.streams.producers import Producers
from moorline.journal.streams.publishers import NOBODY, Mark, StoredBytes, bytes_between
from moorline.journal.streams.seal import Memory, Summary, count_topics, encoded
from moorline.journal.streams.segment import NO_STORE, SEGMENT_HEAD, SegmentGap, SegmentHead
from moorline.journal.streams.segment_index import SparseIndex, Words, entries_of
from moorline.journal.streams.tail import ReadNow, Tail
from moorline.limits import STREAM_SNAPSHOT_BYTES


class Part(NamedTuple):
    """What one commit brings to a shard; `ended` is the generation that this one follows, if it is new."""

    shard: "ShardLog"
    generation: Generation
    ended: Generation | None
    block: Block
    entries: Words
    first_time_us: int
    last_time_us: int
    snapshot: tuple[Summary, Memory] | None
    position: int
    """In the segment, where the block begins."""


class ShardLog:
    """`contents` and `names` are the batch under way; `next_offset` counts it, `end` does not.

    What a run has cut off from them, and the runs, wait in order in `_pieces`.
    """

    __slots__ = (
        "_bytes",
        "_disk",
        "_ended",
        "_node",
        "_pieces",
        "_snapshot_bytes",
        "contents",
        "dropped",
        "folder",
        "generations",
        "gone",
        "lost_before",
        "marks",
        "names",
        "next_offset",
        "number",
        "numbers_upto",
        "producers",
        "publisher",
        "store",
        "stored_bytes",
        "tail",
        "time_us",
        "wants_roll",
    )

    def __init__(
        self,
        disk: Disk,
        node: str,
        number: int,
        store: bytes = NO_STORE,
        stored_bytes: StoredBytes | None = None,
    ) -> None:
        self.stored_bytes = stored_bytes if stored_bytes is not None else StoredBytes()
        self.publisher: str | None = None
        """Of the last message of the batch under way; None if there is none."""
        self.marks: list[Mark] = []
        self._disk = disk
        self._node = node
        self.number = number
        self.folder = folder_of(number)
        self.contents: list[bytes] = []
        self.names: list[str] = []
        self._pieces: list[Contents | Run] = []
        self.producers = Producers()
        self.next_offset = 0
        self.time_us = 0
        self.generations: list[Generation] = []
        self._ended: tuple[tuple[int, int, int], tuple[Extent, ...]] = ((0, 0, 0), ())
        """Which generations there were when last looked, and what those before the newest are."""
        self.dropped: dict[int, Dropped] = {}
        self.lost_before = 0
        self.gone: list[tuple[int, int]] = []
        """Ranges before all that is kept that starts found gone: only the manifest knows of them."""
        self.numbers_upto = 0
        """The highest generation that there ever was, as far as any file knows."""
        self.store = store
        self.tail = Tail()
        self.wants_roll = False
        self._bytes = SEGMENT_HEAD.size
        self._snapshot_bytes = SEGMENT_HEAD.size

    # --- what is there ----------------------------------------------------------------------------

    @property
    def newest(self) -> Generation | None:
        return self.generations[-1] if self.generations else None

    @property
    def first(self) -> int:
        return self.generations[0].first if self.generations else self.next_offset

    @property
    def end(self) -> int:
        return self.generations[-1].end if self.generations else self.next_offset

    @property
    def lost(self) -> int:
        return self.lost_before + sum(generation.lost for generation in self.generations)

    def find(self, number: int) -> Generation | None:
        # A drop makes a new list: a reader in a thread goes on with the one it has.
        generations = self.generations
        if not generations:
            return None
        place = number - generations[0].number
        # Numbers have no holes, unless somebody removed a file.
        if 0 <= place < len(generations) and generations[place].number == number:
            return generations[place]
        return next((one for one in generations if one.number == number), None)

    def generation_of(self, offset: int) -> int:
        if not self.generations:
            return max(self.dropped, default=0)
        firsts = [generation.first for generation in self.generations]
        return self.generations[max(bisect_right(firsts, offset) - 1, 0)].number

    def extents(self) -> tuple[Extent, ...]:
        """Of all generations. Those before the newest change no more: a shard may keep very many, and is
        asked at every commit."""
        known = self.generations
        if not known:
            return ()
        kept = (known[0].number, known[-1].number, len(known))
        if kept != self._ended[0]:
            self._ended = (kept, tuple(self.extent_of(one) for one in known[:-1]))
        return (*self._ended[1], self.extent_of(known[-1]))

    def extent_of(self, generation: Generation) -> Extent:
        stream = Stream(self._node, self.number, generation.number)
        return Extent(stream, generation.first, generation.end, generation.has_ended)

    # --- reading ----------------------------------------------------------------------------------

    def read_now(self, number: int, offset: int, bytes_max: int) -> ReadNow | None:
        """As `read`, from memory; None where the disk must be read, which is for a thread."""
        generation = self.find(number)
        if generation is None:
            return ReadNow(self._gap_of_dropped(number, offset), None)
        end = generation.end
        if offset >= end:
            return ReadNow(None, end)
        block = self.tail.find(offset)
        if block is not None:
            return ReadNow(part_of(block, offset, bytes_max), end)
        # Of what is before all that is kept it is known that it is gone.
        if offset < self.generations[0].first:
            return ReadNow(self.read(number, offset, bytes_max), end)
        return None

    def read(self, number: int, offset: int, bytes_max: int) -> Block | Gap | None:
        generation = self.find(number)
        if generation is None:
            return self._gap_of_dropped(number, offset)
        if offset >= generation.end:
            return None
        if offset < generation.first:
            found = self._before(generation, offset)
            if isinstance(found, Gap):
                return found
            generation = found
        block = self.tail.find(offset)
        if block is not None:
            return part_of(block, offset, bytes_max)
        return generation.read(offset, bytes_max)

    def _before(self, generation: Generation, offset: int) -> Generation | Gap:
        """The earlier generation that has the offset, or what retention took.

        A reader can know the generation from another copy of the folder, where it began elsewhere. An
        offset means the same in both, so it is read where it is, and nothing on the way is passed over.
        """
        for one in (*self.generations, generation):
            if offset < one.first:
                return Gap(offset, one.first, RETENTION)
            if offset < one.end:
                return one
        raise AssertionError(f"{offset} is not below the generation {generation.number}")

    def _gap_of_dropped(self, number: int, offset: int) -> Gap | None:
        gone = self.dropped.get(number)
        upto = min(gone.upto, self.first) if gone is not None else self.first
        return Gap(offset, upto, RETENTION) if offset < upto else None

    def offset_at(self, time_us: int) -> int:
        for generation in list(self.generations):
            may_have_it = generation.last_time_us >= time_us or not generation.is_timed
            if generation.end > generation.first and may_have_it:
                offset = generation.offset_at(time_us)
                if offset < generation.end:
                    return offset
        return self.end

    # --- a commit ---------------------------------------------------------------------------------

    @property
    def has_batch(self) -> bool:
        """Whether there is something for a commit to do."""
        return bool(self.contents or self._pieces or self.wants_roll)

    def mark(self, publisher: str) -> None:
        """What is appended from now on is another one's. Whoever appends compares `publisher` first."""
        self.publisher = publisher
        self.marks.append(Mark(self.next_offset, publisher))

    def add_run(self, run: Run, time_us: int, publisher: str = NOBODY) -> None:
        """Messages that were packed together, with the next offsets."""
        if publisher != self.publisher:
            self.mark(publisher)
        self._end_contents()
        self._pieces.append(run)
        self.next_offset += len(run.lengths)
        self.time_us = time_us

    def _end_contents(self) -> None:
        if self.contents:
            self._pieces.append(Contents(self.contents, self.names))
            self.contents, self.names = [], []

    def take(
        self, now_us: int, generation_bytes_max: int, draw: Callable[[int], bytes]
    ) -> Part | None:
        """The batch under way, ready to be written, in a new generation if it is time for one."""
        generation, ended, snapshot = self.generations[-1], None, None
        first = generation.end
        is_due = self.wants_roll or self._bytes > generation_bytes_max
        if is_due and (first > generation.first or generation.is_gone):
            ended = generation
            generation = self.next_generation(now_us, draw)
            snapshot = self.snapshot_of(generation, generation.end, generation.size_bytes)
        self.wants_roll = False
        self._end_contents()
        if not self._pieces and ended is None:
            return None
        if self.producers.fresh:
            self.producers.take_batch()
        pieces = self._pieces or [Contents([], [])]
        counts: Iterable[tuple[str, int]]
        small = small_piece(pieces)
        if small is not None:
            block, found = small_block(first, small, generation.head.seed)
            counts = found.items()
        else:
            block = block_of(first, pieces, generation.head.seed)
            counts = block_counts(block)
        assert block.upto == self.next_offset, "every message of the batch is in its block"
        times = [time_of(block, place) for place in (0, -1)] if block.data else [self.time_us] * 2
        count_topics(generation.topics, counts)
        self._count_publishers(generation, block)
        position = self._bytes
        self._bytes += len(block.data)
        if ended is None and self._bytes - self._snapshot_bytes > STREAM_SNAPSHOT_BYTES:
            snapshot = self.snapshot_of(generation, block.upto, self._bytes)
        entries = entries_of(first, position, block.data, block.positions)
        self._pieces = []
        return Part(self, generation, ended, block, entries, times[0], times[1], snapshot, position)

    def _count_publishers(self, generation: Generation, block: Block) -> None:
        marks, self.marks, self.publisher = self.marks, [], None
        if not marks:
            return
        known, size = generation.publishers, len(block.data)
        if len(marks) == 1:  # of the first message on
            publisher = marks[0].publisher
            # One that is counted here already, as in most batches: this comes with every single message.
            found = (
                {publisher: size} if publisher in known else bytes_between(marks, [0, size], known)
            )
        else:
            places = [mark.offset - block.first for mark in marks]
            found = bytes_between(marks, [*block.positions[places].tolist(), size], known)
        for publisher, more in found.items():
            known[publisher] = known.get(publisher, 0) + more
        self.stored_bytes.add(found)

    def next_generation(self, now_us: int, draw: Callable[[int], bytes]) -> Generation:
        """The one that begins where the newest ends; what is not committed goes into it."""
        newest = self.newest
        number = newest.number if newest is not None else max(self.dropped, default=0)
        # A number whose files are gone is not used again: an archive may have that stream.
        number = self.numbers_upto = max(number, self.numbers_upto) + 1
        seed = int.from_bytes(draw(8), "little")
        head = SegmentHead(self.number, number, self.end, now_us, seed, self.store)
        generation = Generation(self._disk, path_of(self.folder, number), head)
        generation.index = SparseIndex()
        self._bytes = self._snapshot_bytes = SEGMENT_HEAD.size
        return generation

    def snapshot_of(
        self, generation: Generation, end: int, size_bytes: int
    ) -> tuple[Summary, Memory]:
        """What is remembered up to that message, which is the next one to be appended."""
        self._snapshot_bytes = size_bytes
        summary = Summary(
            generation.head.seed,
            generation.first,
            end,
            0,
            Digest.empty(),
            generation.first_time_us,
            self.time_us,
            size_bytes,
            dict(generation.publishers),
        )
        return summary, Memory(dict(self.producers.stored), dict(generation.topics))

    def write(self, part: Part) -> None:
        """The part goes to the file. Durable after a sync of it."""
        generation = part.generation
        if part.ended is not None:
            if part.ended.file is not None:
                # Without a sync of commits a power cut takes from the end only; and where small commits are
                # synced in the log, what is sealed and listed is durable by itself.
                part.ended.file.sync()
            part.ended.close()
            self.create(generation, part.ended)
        assert generation.file is not None
        assert generation.index_file is not None
        if part.block.data:
            generation.file.append(part.block.data)
        if len(part.entries):
            generation.index_file.append(part.entries.tobytes())

    def create(self, generation: Generation, ended: Generation | None = None) -> None:
        """Begins its file, and then says so in the manifest: what is listed is surely there."""
        generation.create()
        lines = [begun(generation.head)]
        if ended is not None:
            lines.insert(0, reached(ended.number, ended.end, ended.size_bytes))
        self._list(lines)

    def _list(self, lines: list[str]) -> None:
        """Adds to the manifest; where somebody took it, it is made anew with all that is kept."""
        if not add_lines(self._disk, self.folder, self.store, lines):
            kept = [listed_of(one, None) for one in self.generations]
            write_manifest(self._disk, self.folder, self.store, kept, self.gone, lines)

    def leave(self) -> None:
        """At an orderly stop: how far the newest generation came, so that a start misses what is gone."""
        newest = self.newest
        if newest is not None and newest.file is not None and newest.is_readable:
            newest.file.sync()
            self._list([reached(newest.number, newest.end, newest.size_bytes)])
            if newest.publishers:
                # Whose the bytes behind the last snapshot are is in no frame.
                snapshot = self.snapshot_of(newest, newest.end, newest.size_bytes)
                self.write_snapshot(newest, snapshot)

    def write_snapshot(self, generation: Generation, snapshot: tuple[Summary, Memory]) -> None:
        """In a thread, when all that it speaks of is as durable as it will be."""
        self._disk.write_whole(generation.path + SNAPSHOT, encoded(*snapshot))

    def committed(self, part: Part) -> None:
        generation = part.generation
        if part.ended is not None:
            self.generations.append(generation)
            part.ended.finish()
        if not part.block.data:
            return
        if generation.end == generation.first:
            generation.first_time_us = part.first_time_us
        generation.last_time_us = part.last_time_us
        if len(part.entries):
            assert generation.index is not None
            generation.index.add(part.entries)
        self.tail.add(part.block)
        generation.grow(part.block.upto, len(part.block.data))

    # --- recovery and retention -------------------------------------------------------------------

    def opened(
        self, generations: list[Generation], producers: dict[int, int], reached_before: int = 0
    ) -> None:
        """What was found on the disk; and how far the shard had come, where nothing of it is left."""
        self.generations = generations
        self.producers.stored = producers
        for generation in generations:
            self.stored_bytes.add(generation.publishers)
        newest = self.newest
        if newest is None:
            self.next_offset = max(
                [reached_before, *(gone.upto for gone in self.dropped.values())], default=0
            )
            return
        self.next_offset = newest.end
        self.time_us = max(generation.last_time_us for generation in generations)
        self._bytes = self._snapshot_bytes = newest.size_bytes

    def end_newest(self) -> None:
        """The shard is out of use: its newest generation grows no more."""
        self.generations[-1].finish()
        self.generations[-1].close()

    def end_at(self, offset: int) -> None:
        """The newest generation grows no more; what it lacks up to that message is gone."""
        newest = self.newest
        assert newest is not None
        newest.close()
        newest.finish()
        if newest.end < offset:
            # A seal that it has does not speak of them.
            newest.summary = None
            newest.note(
                SegmentGap(newest.end, offset, newest.size_bytes), offset, newest.size_bytes
            )
        newest.end = self.next_offset = offset
        self.tail.clear()

    def skip_to(self, offset: int, now_us: int, draw: Callable[[int], bytes]) -> None:
        """Goes on in a new generation that begins there; what is missing before it is the last one's gap."""
        self.end_at(offset)
        self._go_on(now_us, draw)

    def leap_to(self, offset: int, now_us: int, draw: Callable[[int], bytes]) -> None:
        """As `skip_to`, however far: what lies between belongs to no generation, so no index has a place for
        each message of it."""
        self.end_at(self.end)
        self.next_offset = offset
        self._go_on(now_us, draw)

    def _go_on(self, now_us: int, draw: Callable[[int], bytes]) -> None:
        assert not self.has_batch, "nothing is under way"
        generation = self.next_generation(now_us, draw)
        self.create(generation)
        self.generations.append(generation)
        self.write_snapshot(
            generation, self.snapshot_of(generation, generation.end, generation.size_bytes)
        )

    def close(self) -> None:
        for generation in self.generations:
            generation.close()


def block_counts(block: Block) -> Iterable[tuple[str, int]]:
    """How many messages of a block each topic has."""
    counts = np.bincount(block.topics, minlength=len(block.names)).tolist()
    return zip(block.names, counts, strict=True)


def listed_of(generation: Generation, known: Listed | None) -> Listed:
    """A generation as a start found it, for the manifest."""
    listed = Listed(generation.number, generation.first, generation.head.seed)
    if generation.has_ended or (known is not None and known.upto >= 0):
        return msgspec.structs.replace(listed, upto=generation.end, bytes=generation.size_bytes)
    return listed
