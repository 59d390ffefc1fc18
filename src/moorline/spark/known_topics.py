"""Room: spark. Whether there is anything of the topics that a read names.

A topic is there as long as a message of it is. A filter with wildcards may well match nothing; a name in
which a letter is wrong should not read nothing without a word. Nodes count the messages of their topics; a
folder has these counts in its seals and snapshots, and what is behind them has to be read.
"""

import contextlib
import difflib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from moorline.core.stream import Extent
from moorline.journal.generation import SEAL, SNAPSHOT
from moorline.journal.seal import OTHERS, Memory, Summary, read_seal
from moorline.journal.shard import folder_of, path_of
from moorline.limits import SPARK_NAMES_TOLD_MAX, TOPICS_COUNTED_MAX, TOPICS_PER_PAGE_MAX
from moorline.spark.folder_link import LAYOUT, STREAMS
from moorline.spark.node_link import Links
from moorline.spark.options import Reach
from moorline.spark.places import Range
from moorline.spark.read_only_disk import ReadOnlyDisk
from moorline.wire.topic import ListTopics, TopicsListed

Scan = Callable[[list[Range], frozenset[str]], set[str]]
"""Which of these topics have messages in these ranges."""


class Unknown:
    """Topics of which nothing was found, and what is there instead."""

    def __init__(self, topics: Iterable[str], known: Iterable[str], *, is_certain: bool) -> None:
        self.topics = sorted(topics)
        self.known = set(known)
        self.is_certain = is_certain
        """Whether everybody was asked, and counts every topic by its name."""

    def __str__(self) -> str:
        return "; ".join(map(self._one, self.topics))

    def _one(self, topic: str) -> str:
        alike = difflib.get_close_matches(topic, self.known, SPARK_NAMES_TOLD_MAX)
        hint = f" (there is {', '.join(map(repr, alike))})" if alike else ""
        return f"there is no message of the topic {topic!r}{hint}"


def names_in(filters: Iterable[str]) -> frozenset[str]:
    """Filters without wildcards."""
    return frozenset(one for one in filters if "+" not in one and "#" not in one)


def unknown_to_nodes(
    names: frozenset[str], reach: Reach, nodes: dict[str, tuple[str, ...]], extents: list[Extent]
) -> Unknown:
    """Asks each node for each name, until one has it."""
    links = Links(reach)
    left, known, is_certain, is_known = set(names), set[str](), True, True
    try:
        for addresses in nodes.values():
            for name in list(left):
                make = partial(ListTopics, filter=name, count=1)
                if links.call(addresses, make, TopicsListed).topics:
                    left.discard(name)
        for addresses in nodes.values() if left else ():
            # After a crash a node does not know the topics of a stream before it has sealed it.
            unsealed = [one for one in links.streams(addresses) if one.is_sealed and not one.digest]
            is_known = is_known and not any(one.end > one.first for one in unsealed)
            page = links.call(addresses, ListTopics, TopicsListed).topics
            known.update(topic for topic, _ in page)
            is_certain = is_certain and len(page) < TOPICS_PER_PAGE_MAX
    finally:
        links.close()
    # A stream of so few messages cannot have topics that are not counted by name.
    is_certain = is_certain or all(one.end - one.first <= TOPICS_COUNTED_MAX for one in extents)
    return Unknown(left, known, is_certain=is_certain and is_known)


def unknown_to_folder(
    names: frozenset[str], path: str, extents: list[Extent], scan: Scan
) -> Unknown:
    """Looks into seals and snapshots first, and reads what they do not speak of."""
    root = Path(path)
    disk = ReadOnlyDisk(root / STREAMS if (root / STREAMS / LAYOUT).is_file() else root)
    known: set[str] = set()
    unread: list[Range] = []
    for one in extents:
        told = _told(disk, one)
        end = one.first
        if told is not None:
            summary, memory = told
            known.update(memory.topics)
            end = one.first if OTHERS in memory.topics else min(summary.end, one.end)
        if end < one.end:
            unread.append(Range(one.stream, end, one.end))
    left = set(names - known)
    if left and unread:
        left -= scan(unread, frozenset(left))
    return Unknown(left, known - {OTHERS}, is_certain=True)


def _told(disk: ReadOnlyDisk, extent: Extent) -> tuple[Summary, Memory] | None:
    path = path_of(folder_of(extent.stream.shard), extent.stream.generation)
    for ending in (SEAL, SNAPSHOT):
        with contextlib.suppress(OSError):
            found = read_seal(disk, path + ending)
            if found is not None and found[0].first == extent.first:
                return found
    return None
