"""Room: core/frames. Which messages of a sealed stream have which topic: a list for each topic.

    head    magic     8 bytes  "MOORTOPS"
            seed      u64      of the segment
            first     u64      its first message
            end       u64      behind its last one
            table     u32      bytes of the table
            zero      u32
            check     u64      XXH3-64 of the 40 bytes before it and of the table
    table   msgpack: an array of [topic, count, check], the lists in their order
    lists   u32 each: the numbers of the messages, counted from `first`, ascending

Every message is in one list. `OTHERS` has those whose topics did not fit into the table, `UNREADABLE` those
that were damaged when the stream was sealed: no filter passes these over. A list has a check of its own, so
that a reader of one topic reads the table and that list, whatever else the stream holds.

Nobody relies on the lists for what they give, which is read and matched like anything else. They are relied
upon for what they leave out: so what does not check says nothing, and everything is read.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from moorline.core.frames.byte_columns import Numbers
from moorline.core.topic import Matcher
from moorline.limits import TOPICS_LISTED_BYTES_MAX, TOPICS_WITH_LIST_MAX

HEAD = struct.Struct("<8sQQQIIQ")
MAGIC = b"MOORTOPS"
OTHERS, UNREADABLE = "", "\0"
"""Neither is a topic: one has a character at least, and none of them is zero."""

_CHECKED = HEAD.size - 8
_WORD = 4
_WILD = ("+", "#")

ReadAt = Callable[[int, int], bytes]
"""Bytes of the file: position and length."""


class Listing(NamedTuple):
    """A list of the file: so many numbers at a position, with their check."""

    position: int
    messages: int
    check: int


class TopicTable(NamedTuple):
    """What the file says, without its lists."""

    first: int
    end: int
    listings: dict[str, Listing]

    def wanted(self, filters: Iterable[str]) -> list[Listing]:
        """The lists that may have a message that one of the checked filters takes."""
        names = {UNREADABLE}
        for text in filters:
            if text in self.listings:
                # A topic that is listed has all of its messages there.
                names.add(text)
                continue
            names.add(OTHERS)
            if any(level in _WILD for level in text.split("/")):
                matches = Matcher(text)
                names.update(name for name in self.listings if matches(name))
        return [self.listings[name] for name in sorted(names) if name in self.listings]


class _Row(msgspec.Struct, array_like=True):
    topic: str
    count: int
    check: int


_rows = msgspec.msgpack.Decoder(list[_Row])


def read_table(read_at: ReadAt, seed: int, first: int, end: int) -> TopicTable | None:
    """The table of the stream with that seed and these bounds; None if it is not whole, or of another."""
    head = read_at(0, HEAD.size)
    if len(head) != HEAD.size or not head.startswith(MAGIC):
        return None
    _, its_seed, its_first, its_end, size, _, check = HEAD.unpack(head)
    if (its_seed, its_first, its_end) != (seed, first, end):
        return None
    # A damaged size must not ask for all the memory that there is.
    if size > TOPICS_LISTED_BYTES_MAX + 32 * (TOPICS_WITH_LIST_MAX + 2):
        return None
    table = read_at(HEAD.size, size)
    if xxhash.xxh3_64_intdigest(head[:_CHECKED] + table) != check:
        return None
    try:
        rows = _rows.decode(table)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    listings: dict[str, Listing] = {}
    position = HEAD.size + size
    for row in rows:
        listings[row.topic] = Listing(position, row.count, row.check)
        position += _WORD * row.count
    # Every message is in one list, or a message would be left out that nobody looked at.
    is_complete = sum(one.messages for one in listings.values()) == end - first
    return TopicTable(first, end, listings) if is_complete else None


def candidates(table: TopicTable, read_at: ReadAt, filters: Iterable[str]) -> Numbers | None:
    """The offsets of all messages that one of the filters may take, ascending; None if a list is damaged.

    No other message of the stream has a topic that they take. Of these some may not be taken.
    """
    parts: list[Numbers] = []
    for listing in table.wanted(filters):
        data = read_at(listing.position, listing.messages * _WORD)
        if xxhash.xxh3_64_intdigest(data) != listing.check:
            return None
        parts.append(np.frombuffer(data, "<u4").astype(np.int64))
    if not parts:
        return np.array([], np.int64)
    numbers = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
    return numbers + table.first


class TopicLists:
    """Built from a walk over a stream, message by message in order."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {UNREADABLE: 0, OTHERS: 1}
        self._name_bytes = 0
        self._parts: list[npt.NDArray[np.uint16]] = []

    def add(self, names: Sequence[str], topics: npt.NDArray[np.integer]) -> None:
        """The next messages: each has the name at its place."""
        places = np.array([self._place(name) for name in names], np.uint16)
        self._parts.append(places[topics])

    def skip(self, count: int) -> None:
        """The next messages cannot be read."""
        self._parts.append(np.zeros(count, np.uint16))

    def _place(self, name: str) -> int:
        known = self._places.get(name)
        if known is not None:
            return known
        size = len(name.encode())
        # Once full it stays full, so that no topic is in two lists.
        if (
            len(self._places) - 2 >= TOPICS_WITH_LIST_MAX
            or self._name_bytes + size > TOPICS_LISTED_BYTES_MAX
        ):
            self._name_bytes = TOPICS_LISTED_BYTES_MAX
            return self._places[OTHERS]
        self._name_bytes += size
        self._places[name] = len(self._places)
        return self._places[name]

    def encoded(self, seed: int, first: int, end: int) -> bytes:
        """The whole file; what was not walked up to `end` cannot be read."""
        self.skip(end - first - sum(map(len, self._parts)))
        places = np.concatenate(self._parts)
        assert len(places) == end - first, "every message is in one list"
        # Of 16 bits: numpy sorts those by counting, and keeps the order of equals.
        numbers = np.argsort(places, kind="stable").astype("<u4")
        counts = np.bincount(places, minlength=len(self._places)).tolist()
        rows, lists, at = list[_Row](), list[bytes](), 0
        for name, count in zip(self._places, counts, strict=True):
            if count:
                lists.append(numbers[at : at + count].tobytes())
                rows.append(_Row(name, count, xxhash.xxh3_64_intdigest(lists[-1])))
            at += count
        table = msgspec.msgpack.encode(rows)
        head = HEAD.pack(MAGIC, seed, first, end, len(table), 0, 0)[:_CHECKED]
        check = xxhash.xxh3_64_intdigest(head + table)
        return b"".join([head, struct.pack("<Q", check), table, *lists])
