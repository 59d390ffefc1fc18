"""Room: spark. The plan of a replay: which messages are published by which step.

A plan is chapters, and a chapter is spans of streams with the size of their pieces. Steps are worked out
from it, one at a time and always the same: so a plan is as large as the archive has streams, however many
steps it has. Step 17 is the same messages today and tomorrow, whatever compaction did to the files.

A replay that is run again with another rate begins a chapter with what no step has touched yet; and one that
finds more in the archive begins a chapter with that.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from moorline.core.stream import Shard, Stream
from moorline.limits import (
    REPLAY_PIECE_BYTES,
    REPLAY_PIECE_ROWS,
    REPLAY_STEP_PIECES,
    REPLAY_STEP_S,
)
from moorline.spark.jobs.manifest import ArchivedFile, by_stream


class Piece(NamedTuple):
    """Messages `first` to before `upto` of a stream."""

    stream: Stream
    first: int
    upto: int


Step = list[Piece]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Messages `first` to before `end` of a stream, in pieces of so many."""

    stream: Stream
    first: int
    end: int
    piece_rows: int

    def pieces(self) -> Iterator[Piece]:
        for first in range(self.first, self.end, self.piece_rows):
            yield Piece(self.stream, first, min(first + self.piece_rows, self.end))


class Chapter(msgspec.Struct, frozen=True):
    """Spans; the messages of a step at most, 0 is any number; and how many of its steps count, -1 is all."""

    spans: list[Span]
    step_rows: int
    steps_max: int = -1

    def steps(self) -> Iterator[Step]:
        steps = dealt(self.spans, self.step_rows)
        return steps if self.steps_max < 0 else islice(steps, self.steps_max)


class Plan(msgspec.Struct, frozen=True):
    """Where the replay goes, what it is of, and its chapters."""

    address: str
    topics: str
    first_us: int
    upto_us: int
    prefix: str
    chapters: list[Chapter] = []

    def steps(self) -> Iterator[Step]:
        for chapter in self.chapters:
            yield from chapter.steps()

    def extended(self, files: Iterable[ArchivedFile], rate: int, done: int) -> "Plan":
        """With what these files have beyond it, and with what is left of it at that rate.

        The step behind those that are done may have been published already, and stays what it is.
        """
        step_rows = rate * REPLAY_STEP_S
        chapters = self.chapters
        if any(chapter.step_rows != step_rows for chapter in chapters):
            chapters = _first(chapters, done + 1)
        reached: dict[Stream, int] = {}
        for chapter in chapters:
            for step in chapter.steps():
                for stream, _, upto in step:
                    reached[stream] = max(reached.get(stream, 0), upto)
        spans = spans_of(files, reached, step_rows)
        more = [Chapter(spans, step_rows)] if spans else []
        return msgspec.structs.replace(self, chapters=[*chapters, *more])


def _first(chapters: list[Chapter], steps: int) -> list[Chapter]:
    """The first so many steps of them."""
    kept: list[Chapter] = []
    for chapter in chapters:
        count = sum(1 for _ in chapter.steps())
        if count >= steps:
            return [*kept, msgspec.structs.replace(chapter, steps_max=steps)]
        kept.append(chapter)
        steps -= count
    return kept


def spans_of(
    files: Iterable[ArchivedFile], reached: dict[Stream, int], step_rows: int
) -> list[Span]:
    """What these files have beyond what is reached, the oldest of each shard first."""
    rows_max = min(REPLAY_PIECE_ROWS, step_rows or REPLAY_PIECE_ROWS)
    spans = []
    for stream, some in sorted(by_stream(files).items()):
        row_bytes = sum(file.size_bytes for file in some) // max(1, sum(file.rows for file in some))
        first = max(reached.get(stream, 0), min(file.first for file in some))
        end = max(file.last for file in some) + 1
        if first < end:
            rows = max(1, min(rows_max, REPLAY_PIECE_BYTES // max(1, row_bytes)))
            spans.append(Span(stream, first, end, rows))
    return spans


def dealt(spans: Iterable[Span], step_rows: int) -> Iterator[Step]:
    """Shards in turn, so that none is far behind; a shard once in a step, its pieces in their order."""
    shards: dict[Shard, list[Span]] = {}
    for span in spans:
        shards.setdefault(span.stream.shard, []).append(span)
    lines = [_pieces(some) for some in shards.values()]
    step: Step = []
    rows = 0
    while lines:
        left = []
        for line in lines:
            piece = next(line, None)
            if piece is None:
                continue
            left.append(line)
            count = piece.upto - piece.first
            is_full = len(step) >= REPLAY_STEP_PIECES or (step_rows and rows + count > step_rows)
            if step and (is_full or any(piece.stream.shard == one.stream.shard for one in step)):
                yield step
                step, rows = [], 0
            step.append(piece)
            rows += count
        lines = left
    if step:
        yield step


def _pieces(spans: list[Span]) -> Iterator[Piece]:
    for span in spans:
        yield from span.pieces()
