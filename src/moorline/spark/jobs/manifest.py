"""Room: spark. The manifest of an archive: which files count, how far they reach, what says nothing any more.

Pure: entries come in as they were read. An entry names the files that a writing brought, and those that
they take the place of; a file counts if an entry names it and no entry has replaced it.
"""

from collections.abc import Iterable

import msgspec

from moorline.core.stream import Stream

MAX_US = (1 << 63) - 1
"""Behind every message: where nobody says when the last one was, or is to be."""


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file of one stream; `path` is below the archive, offsets go from `first` to `last`.

    Times are those of its messages, where the footer tells them.
    """

    path: str
    rows: int
    size_bytes: int
    node: str
    shard: int
    generation: int
    first: int
    last: int
    first_us: int = 0
    last_us: int = MAX_US
    hash: str = ""
    """XXH3-128 of its bytes; none of a folder that Spark wrote."""

    @property
    def stream(self) -> Stream:
        return Stream(self.node, self.shard, self.generation)


class ArchiveGap(msgspec.Struct, frozen=True):
    """Messages `first` to before `upto` of a shard were gone before they were archived, which was allowed."""

    shard: str
    first: int
    upto: int
    why: str

    def __str__(self) -> str:
        count = self.upto - self.first
        return f"{count} messages of {self.shard}, {self.first} to {self.upto - 1}: {self.why}"


class Entry(msgspec.Struct, frozen=True):
    """Files that came, and paths that they replace.

    One that a batch of a query wrote says so, and how far each shard was read with it: `reached` has the
    first offset of each that is not in the archive. `lost` says what of it was gone, where that is allowed.
    """

    name: str
    files: list[ArchivedFile]
    replaced: list[str] = []
    query: str = ""
    batch: int = -1
    reached: dict[str, int] = {}
    lost: list[ArchiveGap] = []


def live_files(entries: Iterable[Entry]) -> list[ArchivedFile]:
    """The files that some entry names and none has replaced."""
    entries = list(entries)
    replaced = {path for entry in entries for path in entry.replaced}
    files = {file.path: file for entry in entries for file in entry.files}
    return [files[path] for path in sorted(files) if path not in replaced]


def reached(entries: Iterable[Entry]) -> dict[str, int]:
    """How far each shard is archived: the first offset that is not."""
    ends: dict[str, int] = {}
    for entry in entries:
        for shard, end in entry.reached.items():
            ends[shard] = max(ends.get(shard, 0), end)
    return ends


def idle_entries(entries: list[Entry]) -> list[str]:
    """Names of entries that say nothing any more, in an order in which each may go.

    One may go when none of its files counts, nobody else names a file that it replaces, and it tells of no
    loss. The newest batch of a query stays: Spark may ask for it again, and its entry says that it is there.
    """
    left = {entry.name: entry for entry in entries}
    newest: dict[str, Entry] = {}
    for entry in entries:
        if entry.query and entry.batch >= newest.get(entry.query, entry).batch:
            newest[entry.query] = entry
    kept = {entry.name for entry in newest.values()}
    gone: list[str] = []
    replaced = {path for entry in entries for path in entry.replaced}
    while True:
        named = {file.path for entry in left.values() for file in entry.files}
        idle = [
            entry.name
            for entry in left.values()
            if entry.name not in kept
            and all(file.path in replaced for file in entry.files)
            and not any(path in named for path in entry.replaced)
            and not entry.lost
        ]
        if not idle:
            return gone
        for name in idle:
            del left[name]
        gone += idle


def by_stream(files: Iterable[ArchivedFile]) -> dict[Stream, list[ArchivedFile]]:
    streams: dict[Stream, list[ArchivedFile]] = {}
    for file in files:
        streams.setdefault(file.stream, []).append(file)
    return streams


def lost_ranges(entries: Iterable[Entry]) -> dict[str, list[ArchiveGap]]:
    """What was gone before it was archived, by shard."""
    found: dict[str, list[ArchiveGap]] = {}
    for entry in entries:
        for one in entry.lost:
            found.setdefault(one.shard, []).append(one)
    return found
