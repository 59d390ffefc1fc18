"""Room: journal/streams. Sealing a generation that grows no more: one walk gives its dense index, the
lists of its topics, and its seal.

And the other way round: what a seal knows of a segment whose head is damaged.
"""

import numpy as np

from moorline.core.frames.topic_lists import TopicLists
from moorline.journal.disk import Disk, DiskFile
from moorline.journal.streams.generation import (
    DENSE,
    INDEX,
    SEAL,
    SEGMENT,
    SNAPSHOT,
    TOPICS,
    Generation,
)
from moorline.journal.streams.producers import remember
from moorline.journal.streams.seal import (
    DigestBuild,
    Memory,
    Seal,
    Summary,
    count_topics,
    encoded,
    read_seal,
    read_summary,
)
from moorline.journal.streams.segment import (
    SEGMENT_HEAD,
    SegmentGap,
    SegmentHead,
    producers_of,
    read_frames,
    read_head,
    time_at,
)
from moorline.journal.streams.segment_index import IndexBuild


def make_seal(disk: Disk, generation: Generation, before: dict[int, int]) -> Seal:
    """In a thread. `before` are the producers that the generation before it remembers."""
    memory = Memory()
    # Sequences only grow: a snapshot from the middle and the frames from the beginning agree.
    snapshot = read_seal(disk, generation.path + SNAPSHOT)
    is_its_own = snapshot is not None and snapshot[0].seed == generation.head.seed
    remember(memory.producers, before.items())
    if snapshot is not None and is_its_own:
        remember(memory.producers, snapshot[1].producers.items())
    digest, index, lists = DigestBuild(), IndexBuild(generation.first), TopicLists()
    times: list[int] = []
    file = disk.open(generation.path + SEGMENT, create=False)
    try:
        for piece in generation.walk(file) if generation.is_readable else ():
            if isinstance(piece, SegmentGap):
                index.skip(piece)
                lists.skip(piece.upto - piece.first)
                continue
            digest.add(piece)
            index.add(piece)
            remember(memory.producers, producers_of(piece))
            names, topics = piece.topics()
            lists.add(names, topics)
            counts = np.bincount(topics, minlength=len(names)).tolist()
            count_topics(memory.topics, zip(names, counts, strict=True))
            times += [time_at(piece.data, piece.positions[place]) for place in (0, -1)]
    finally:
        file.close()
    summary = Summary(
        generation.head.seed,
        generation.first,
        generation.end,
        digest.count,
        digest.digest(),
        times[0] if times else generation.head.created_us,
        times[-1] if times else generation.last_time_us,
        generation.size_bytes,
        dict(generation.publishers),
    )
    disk.write_whole(generation.path + DENSE, index.dense(generation.end))
    topic_lists = lists.encoded(generation.head.seed, generation.first, generation.end)
    disk.write_whole(generation.path + TOPICS, topic_lists)
    disk.write_whole(generation.path + INDEX, index.sparse.entries())
    disk.write_whole(generation.path + SEAL, encoded(summary, memory))
    if disk.exists(generation.path + SNAPSHOT):
        disk.remove(generation.path + SNAPSHOT)
    return Seal.of(summary, memory)


def summary_of(generation: Generation, seal: Seal) -> Summary:
    return Summary(
        generation.head.seed,
        seal.first,
        seal.end,
        seal.count,
        seal.digest,
        seal.first_time_us,
        seal.last_time_us,
        seal.bytes,
        seal.publishers,
    )


def true_head(disk: Disk, path: str, file: DiskFile, wanted: SegmentHead) -> SegmentHead | None:
    """The head of a segment; where it is damaged, what seal or snapshot know and its first frame proves."""
    head = read_head(file)
    if head is not None and (head.shard, head.generation) != (wanted.shard, wanted.generation):
        head = None
    for ending in (SEAL, SNAPSHOT):
        known = read_summary(disk, path + ending)
        if known is None or (
            head is not None and (head.seed, head.first) == (known.seed, known.first)
        ):
            continue
        found = read_frames(file, SEGMENT_HEAD.size, file.size(), known.first, known.seed, 1)
        if len(found.positions):
            return SegmentHead(
                wanted.shard, wanted.generation, known.first, known.first_time_us, known.seed
            )
    return head
