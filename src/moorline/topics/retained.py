"""Room: topics. The retained messages of all nodes, for a new subscription."""

from collections.abc import Generator, Iterable

from moorline.core.frames.frame import all_stored, frames_in
from moorline.journal.streams.retained import Entry, is_tombstone


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
