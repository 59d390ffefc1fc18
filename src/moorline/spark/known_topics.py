"""Room: spark. Whether there is anything of the topics that a read names.

A topic is there as long as a message of it is. A filter with wildcards may well match nothing; a name in
which a letter is wrong should not read nothing without a word. Nodes count the messages of their topics; a
folder has these counts in its seals and snapshots, and what is behind them has to be read.
"""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from moorline.core.stream import Extent
from moorline.journal.read_only_disk import ReadOnlyDisk
from moorline.journal.streams.folder import LAYOUT, STREAMS
from moorline.journal.streams.generation import SEAL, SNAPSHOT
from moorline.journal.streams.layout import folder_of, path_of
from moorline.journal.streams.seal import OTHERS, Memory, Summary, read_seal
from moorline.limits import (
    SPARK_NAMES_TOLD_MAX,
    SPARK_READS_IN_FLIGHT,
    TOPICS_COUNTED_MAX,
    TOPICS_PER_PAGE_MAX,
)
from moorline.spark.node_link import Links, Told
from moorline.spark.options import Endpoint
from moorline.spark.planning import Range
from moorline.wire.topic import ListTopics, TopicsListed

Scan = Callable[[list[Range], frozenset[str]], set[str]]
"""Which of these topics have messages in these ranges."""

Found = TypeVar("Found")


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
    names: frozenset[str], endpoint: Endpoint, nodes: dict[str, tuple[str, ...]]
) -> Unknown:
    """Asks all nodes for all names, side by side; what is there instead, only if one is missing."""
    links = Links(endpoint)
    try:
        asked = {node: _found(links, addresses, names) for node, addresses in nodes.items()}
        left = set(names).difference(*_all_told(links.together(asked)))
        if not left:
            return Unknown((), (), is_certain=True)
        listed = {node: _listed(links, addresses) for node, addresses in nodes.items()}
        told = _all_told(links.together(listed))
    finally:
        links.close()
    known = {topic for one in told for topic in one.topics}
    return Unknown(left, known, is_certain=all(one.is_certain for one in told))


class _Listed(NamedTuple):
    """Topics of a node, and whether it can say that another one is not there."""

    topics: set[str]
    is_certain: bool


async def _found(links: Links, addresses: tuple[str, ...], names: frozenset[str]) -> set[str]:
    """Those of the topics that a node has messages of."""
    found: set[str] = set()
    ordered = sorted(names)
    for first in range(0, len(ordered), SPARK_READS_IN_FLIGHT):
        some = ordered[first : first + SPARK_READS_IN_FLIGHT]
        makes = [partial(ListTopics, filter=name, count=1) for name in some]
        answers = await links.ask_all(addresses, makes, TopicsListed)
        found.update(name for name, answer in zip(some, answers, strict=True) if answer.topics)
    return found


async def _listed(links: Links, addresses: tuple[str, ...]) -> _Listed:
    page = (await links.ask(addresses, ListTopics, TopicsListed)).topics
    streams = await links.all_streams(addresses)
    # After a crash a node does not know the topics of a stream before it has sealed it.
    is_known = not any(one.is_sealed and not one.digest and one.end > one.first for one in streams)
    # A stream of so few messages cannot have topics that are not counted by name.
    are_small = all(one.end - one.first <= TOPICS_COUNTED_MAX for one in streams)
    is_certain = is_known and (len(page) < TOPICS_PER_PAGE_MAX or are_small)
    return _Listed({topic for topic, _ in page}, is_certain)


def _all_told(told: Mapping[str, Told[Found]]) -> list[Found]:
    """Where a node did not answer nothing is certain: its error is the caller's."""
    found: list[Found] = []
    for one in told.values():
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    return found


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
    path = path_of(folder_of(extent.stream.shard_number), extent.stream.generation)
    for ending in (SEAL, SNAPSHOT):
        with contextlib.suppress(OSError):
            found = read_seal(disk, path + ending)
            if found is not None and found[0].first == extent.first:
                return found
    return None
