"""Room: topics. The retained messages of all nodes, for a new subscription."""

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain

from moorline.core.frames.frame import all_stored, frames_in
from moorline.journal.streams.retained import Entry, is_tombstone
from moorline.limits import RETAINED_BYTES_MAX, RETAINED_WALKS_MAX

Walk = Iterator[Entry | None]
"""The retained messages that match a filter, step by step; None where a step found none."""


def newest_retained(
    ours: Iterable[Entry], theirs: Iterable[bytes]
) -> Generator[None, None, list[bytes]]:
    """Of our own and of the frames of other nodes, the newest of each topic that is not taken back."""
    newest: dict[str, tuple[int, bytes]] = {}
    for entry in ours:
        newest[entry.topic] = (entry.time_us, entry.frame)
        yield
    for several in theirs:
        for frame in frames_in(several):
            for one in all_stored(frame):
                if one.topic not in newest or newest[one.topic][0] < one.time_us:
                    newest[one.topic] = (one.time_us, frame)
            yield
    kept: list[bytes] = []
    for _, frame in newest.values():
        if not is_tombstone(frame):
            kept.append(frame)
        yield
    return kept


class RetainedPages:
    """For other nodes, which ask for one page after the other.

    A page says how many came before the next one. The walk that it ended in is kept for that; where it is
    not any more, another one passes over so many. What is retained meanwhile may come or not, and what was
    there all the time comes.
    """

    def __init__(self, find: Callable[[str], Walk]) -> None:
        self._find = find
        self._kept: dict[tuple[str, int], tuple[Entry, Walk]] = {}
        """By what to skip: the entry that had no room, and what follows it."""

    def page(self, filter_text: str, skip: int) -> Generator[None, None, tuple[list[bytes], int]]:
        """Frames, and what to skip for those that follow; 0 if none do."""
        kept = self._kept.pop((filter_text, skip), None)
        left = skip if kept is None else 0
        first, walk = ([], self._find(filter_text)) if kept is None else ([kept[0]], kept[1])
        frames: list[bytes] = []
        size = 0
        for entry in chain(first, walk):
            if entry is None:
                pass
            elif left:
                left -= 1
            elif frames and size + len(entry.frame) > RETAINED_BYTES_MAX:
                behind = skip + len(frames)
                if len(self._kept) == RETAINED_WALKS_MAX:
                    # The oldest: whoever began it has most likely gone.
                    del self._kept[next(iter(self._kept))]
                self._kept[filter_text, behind] = entry, walk
                return frames, behind
            else:
                frames.append(entry.frame)
                size += len(entry.frame)
            yield
        return frames, 0
