"""Room: journal/streams. Reads every message of a node's streams, and says what is not as it was left.

It does what a start does, on a copy in memory (`OverlayDisk`): what a start would find, set aside or go on
behind is told and not done. Then every frame of every generation is checked, and what is sealed is compared
with its seal. Nothing on the disk is changed.
"""

from collections.abc import Callable

import msgspec

from moorline.journal.disk import Disk
from moorline.journal.overlay import OverlayDisk
from moorline.journal.streams.generation import SEGMENT, Generation
from moorline.journal.streams.inspection import StreamProblem
from moorline.journal.streams.layout import NO_OWNER, read_home, read_layout, read_owner
from moorline.journal.streams.seal import DigestBuild
from moorline.journal.streams.segment import SegmentGap
from moorline.journal.streams.store import StreamOptions, StreamStore

Visited = Callable[[int, int], None]
"""Hears how many streams were read, and of how many."""


class StreamReport(msgspec.Struct):
    streams: int = 0
    messages: int = 0
    """Those that can be read."""
    known_lost: int = 0
    """Messages that are gone and were counted before: in a seal, or by an earlier start."""
    problems: list[StreamProblem] = []

    @property
    def lost(self) -> int:
        return sum(problem.lost for problem in self.problems)


def check_streams(
    disk: Disk, owner: bytes | None, now_us: Callable[[], int], visited: Visited, *, sync: bool
) -> StreamReport:
    """`owner` is the node's id, if it is known; `sync` whether what was answered survives a power cut."""
    overlay = OverlayDisk(disk)
    options = StreamOptions(shards=max(1, read_layout(overlay)), sync=sync)
    known = owner or read_owner(overlay) or NO_OWNER
    store = StreamStore(overlay, read_home(overlay) or "node", options, now_us, owner=known)
    store.open()
    report = StreamReport(problems=list(store.problems))
    found = store.all_generations()
    known_before = sum(
        shard.lost_before for shard, _ in {id(one[0]): one for one in found}.values()
    )
    # A generation that the start has just begun is none that was there.
    found = [one for one in found if disk.exists(one[1].path + SEGMENT)]
    for number, (shard, generation) in enumerate(found):
        visited(number, len(found))
        _read(overlay, shard.number, generation, report)
    visited(len(found), len(found))
    newly = sum(upto - first for first, upto in store.found_gone)
    report.known_lost += known_before - newly
    report.streams = len(found)
    store.close()
    return report


def _read(disk: Disk, shard: int, generation: Generation, report: StreamReport) -> None:
    digest, gaps = DigestBuild(), []
    file = disk.open(generation.path + SEGMENT, create=False)
    try:
        for piece in generation.walk(file) if generation.is_readable else ():
            if isinstance(piece, SegmentGap):
                gaps.append(piece)
            else:
                digest.add(piece)
    finally:
        file.close()
    if not generation.is_readable:
        gaps = [SegmentGap(generation.first, generation.end, 0)]
    report.messages += digest.count
    summary = generation.summary
    if summary is not None and summary.count == digest.count:
        report.known_lost += generation.end - generation.first - digest.count
        if summary.digest != digest.digest():
            text = f"{generation.path}{SEGMENT} does not hold the messages that were sealed"
            report.problems.append(StreamProblem("seal", shard, generation.number, text))
        return
    gone = {one.generation for one in report.problems if one.shard == shard}
    for gap in gaps:
        text = f"{generation.path}{SEGMENT}: messages {gap.first} to {gap.upto} cannot be read"
        # What is missing behind a generation whose neighbour vanished is counted there.
        lost = 0 if generation.number + 1 in gone else gap.upto - gap.first
        report.problems.append(StreamProblem("damage", shard, generation.number, text, lost))
