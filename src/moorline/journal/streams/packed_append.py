"""Room: journal/streams. Rows that were packed elsewhere, appended to the shards of a node a chunk at a
time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from moorline.core.frames.byte_columns import Numbers
from moorline.core.frames.frame import HEAD, RETAIN
from moorline.journal.streams.framing import Run
from moorline.journal.streams.publishers import NOBODY
from moorline.journal.streams.shard import ShardLog
from moorline.wire.packed_rows import PackedRows, Stamps, filled, names_used


class Appended(NamedTuple):
    """How many rows are new, their bytes, and the contents of those that are to be retained."""

    rows: int
    size_bytes: int
    retain: list[bytes]


class NumberedRows(NamedTuple):
    """Rows of one producer: row `i` has the sequence `sequence + order[i]`, which grows in every shard."""

    rows: PackedRows
    order: Numbers
    producer: int
    sequence: int

    def append_to(
        self, shards: Sequence[ShardLog], skip: int, now_us: int, publisher: str = NOBODY
    ) -> Appended:
        """Into the batches under way; the first `skip` rows are passed over, and duplicates."""
        rows = self.rows
        runs = np.diff(rows.ends, prepend=0)
        lows = self._first_new(shards, rows.ends - runs, skip)
        times_us = [max(now_us, shard.time_us) for shard in shards]
        bases = [shard.next_offset for shard in shards] - lows
        stamps = Stamps(
            np.arange(rows.count) + np.repeat(bases, runs),
            np.repeat(times_us, runs),
            self.producer,
            self.order + self.sequence,
        )
        frames, flags = filled(rows, stamps)
        edges = np.append(rows.positions(), len(frames))
        view = memoryview(frames)
        stored = size_bytes = 0
        retain: list[bytes] = []
        for shard, low, stop, time_us in zip(
            shards, lows.tolist(), rows.ends.tolist(), times_us, strict=True
        ):
            if low == stop:
                continue
            some, begin, end = slice(low, stop), int(edges[low]), int(edges[stop])
            # With many topics and shards the names of the other shards' rows would be most.
            named = names_used(rows.names, rows.topics[some])
            run = Run(view[begin:end], rows.lengths[some], *named)
            shard.add_run(run, time_us, publisher)
            shard.producers.note(self.producer, int(self.order[stop - 1]) + self.sequence)
            kept = np.flatnonzero(flags[some] & RETAIN) + low
            starts, ends = edges[kept] + HEAD.size, edges[kept + 1]
            retain += map(bytes, map(view.__getitem__, map(slice, starts, ends)))
            stored += stop - low
            size_bytes += end - begin
        return Appended(stored, size_bytes, retain)

    def _first_new(self, shards: Sequence[ShardLog], firsts: Numbers, skip: int) -> Numbers:
        """Of each shard the first row that is not passed over."""
        lows = []
        for shard, first, stop in zip(
            shards, firsts.tolist(), self.rows.ends.tolist(), strict=True
        ):
            done = max(shard.producers.last(self.producer) - self.sequence, skip - 1)
            lows.append(first + int(np.searchsorted(self.order[first:stop], done, "right")))
        return np.array(lows, np.int64)
