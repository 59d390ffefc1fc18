"""Room: journal/streams. Compares a shard's folder with what its manifest, seals and snapshots say.
Changes nothing.

A start does what this finds, and `moor journal check` tells it. What a crash can leave is no problem: a
generation that was made and not listed yet, a torn line, files that a drop had not removed yet.
"""

from typing import NamedTuple

import msgspec

from moorline.journal.disk import TEMPORARY_SUFFIX, Disk
from moorline.journal.streams.dropped import DROPPED_LOG, DroppedReading
from moorline.journal.streams.generation import SEAL, SEGMENT, SNAPSHOT
from moorline.journal.streams.manifest import Listed, ManifestFound, read_manifest
from moorline.journal.streams.seal import Summary, read_summary
from moorline.journal.streams.sealing import true_head
from moorline.journal.streams.segment import SEGMENT_HEAD, SegmentHead, read_head
from moorline.limits import STREAM_SKIP_MARGIN


class StreamProblem(msgspec.Struct, frozen=True):
    """One thing in the files of a shard that is not as it was left.

    `kind` is one of: missing, short, foreign, replaced, unlisted, manifest, log, deleted, damage, seal.
    """

    kind: str
    shard: int
    generation: int
    text: str
    lost: int = 0
    """Messages that are gone by it, as far as it is known."""


class Inspection(NamedTuple):
    """What is wrong, and what a start has to know for it."""

    manifest: ManifestFound
    problems: list[StreamProblem]
    aside: list[int]
    """Generations whose files are not ours: they must leave the way."""
    numbers_upto: int
    """The highest generation that there ever was: the next one is behind it."""
    reached: int
    """The furthest end of the shard that any file tells of: the next message is not before it."""
    gone: list[tuple[int, int]]
    """Ranges before all that is kept, that are newly found gone."""


def inspect(
    disk: Disk,
    folder: str,
    shard: int,
    store: bytes,
    dropped: DroppedReading,
    *,
    is_synced: bool,
) -> Inspection:
    """`is_synced`: what was answered survives a power cut, so a snapshot never knows more than the file."""
    return _Look(disk, folder, shard, store, dropped, is_synced=is_synced).look()


class _Look:
    """One look at one folder."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        shard: int,
        store: bytes,
        dropped: DroppedReading,
        *,
        is_synced: bool,
    ) -> None:
        self._is_synced = is_synced
        self._reached: list[int] = []
        self._disk = disk
        self._folder = folder
        self._shard = shard
        self._store = store
        self._dropped, self._bad_drops = dropped
        self._manifest = read_manifest(disk, folder, store)
        self._listed = {
            number: one
            for number, one in self._manifest.listed.items()
            if number not in self._dropped
        }
        self._firsts = {one.generation: one.first for one in self._listed.values()}
        """Where each generation begins that is listed, or is there and ours."""
        self._unlisted: list[int] = []
        """Those that are ours, and that a manifest that is whole would name."""
        self._problems: list[StreamProblem] = []
        self._aside: list[int] = []
        names = disk.list_folder(folder)
        known = self._dropped.keys()
        self._segments = sorted(_numbers(names, SEGMENT) - known)
        self._given_up = sorted(_numbers(names, SEGMENT) & known)
        self._described = (_numbers(names, SEAL) | _numbers(names, SNAPSHOT)) - known

    def look(self) -> Inspection:
        for number in self._segments:
            self._look_at(number)
        for number in self._given_up:
            self._look_at_given_up(number)
        there = [number for number in self._segments if number not in self._aside]
        missing = self._missing(there)
        self._look_at_manifest(there)
        ends = [one.upto for one in self._dropped.values()]
        ends += [one.end for one in self._listed.values()]
        ends += [one.end for one in missing] + self._reached
        numbers = [*self._listed, *self._dropped, *(one.generation for one in missing)]
        return Inspection(
            self._manifest,
            self._problems,
            self._aside,
            max(numbers, default=0),
            max(ends, default=0),
            self._gone(missing, there),
        )

    # --- files that are there ---------------------------------------------------------------------

    def _look_at(self, number: int) -> None:
        head, size = self._head(number)
        listed = self._listed.get(number)
        if head is not None and head.store != self._store:
            self._put_aside(number, "foreign", "is of another node")
        elif head is not None and listed is not None and head.seed != listed.seed:
            self._put_aside(
                number, "replaced", "is not the one that this node wrote: an older copy?"
            )
        elif listed is None and self._listed and not self._is_ours(number, head):
            self._put_aside(number, "unlisted", "was not there when this node ran last")
        else:
            if listed is None and self._listed and number not in self._expected():
                self._unlisted.append(number)
            if head is not None:
                self._firsts[number] = head.first
            self._look_at_size(number, head, size, listed)

    def _look_at_given_up(self, number: int) -> None:
        """A crash came before it was removed; only the very segment that retention took may be."""
        head = self._true_head(number)
        if (head.seed if head is not None else 0) != self._dropped[number].seed:
            self._put_aside(number, "replaced", "is not the one that retention gave up")

    def _is_ours(self, number: int, head: SegmentHead | None) -> bool:
        """Whether a segment that the manifest does not name is what this node wrote under that number.

        It is the segment that proves it, and not the manifest, which may have lost any line: its own head,
        or what its seal or snapshot knows and its first frame proves; and it stands where the others leave
        room for it.
        """
        if number in self._expected():
            return True
        if head is not None and (head.shard, head.generation) != (self._shard, number):
            return False
        head = head or self._true_head(number)
        if head is None:
            return False
        before = [one.end for one in self._listed.values() if one.generation < number]
        before += [known for one, known in self._firsts.items() if one < number]
        before += [one.upto for one in self._dropped.values()]
        behind = [known for one, known in self._firsts.items() if one > number]
        return max(before, default=0) <= head.first <= min(behind, default=head.first)

    def _true_head(self, number: int) -> SegmentHead | None:
        path = f"{self._folder}/{number:08}"
        file = self._disk.open(path + SEGMENT, create=False)
        try:
            return true_head(self._disk, path, file, SegmentHead(self._shard, number, 0, 0, 0))
        finally:
            file.close()

    def _look_at_size(
        self, number: int, head: SegmentHead | None, size: int, listed: Listed | None
    ) -> None:
        # The head was durable before the line of the manifest was written.
        had = max(listed.bytes, SEGMENT_HEAD.size) if listed is not None else 0
        for ending in (SEAL, SNAPSHOT) if self._is_synced else (SEAL,):
            known = read_summary(self._disk, f"{self._folder}/{number:08}{ending}")
            if known is not None and head is not None and known.seed == head.seed:
                had = max(had, known.bytes)
                self._reached.append(known.end)
        if size < had:
            self._tell("short", number, f"has {size} bytes and had {had}")
            if listed is not None and size < SEGMENT_HEAD.size:
                self._leave_offsets_out(number, max([listed.end, *self._reached]))

    def _expected(self) -> tuple[int, ...]:
        """Made, but not listed: a crash may come between the two."""
        return (max([*self._listed, *self._dropped]) + 1,)

    def _head(self, number: int) -> tuple[SegmentHead | None, int]:
        file = self._disk.open(f"{self._folder}/{number:08}{SEGMENT}", create=False)
        try:
            return read_head(file), file.size()
        finally:
            file.close()

    def _put_aside(self, number: int, kind: str, text: str) -> None:
        self._aside.append(number)
        self._tell(kind, number, text)

    # --- files that are not -----------------------------------------------------------------------

    def _missing(self, there: list[int]) -> list[Listed]:
        """Generations of which something tells, and whose segment is gone."""
        found = []
        for number in sorted((self._listed.keys() | self._described) - set(there)):
            listed = self._listed.get(number) or Listed(number, 0, 0)
            if number in self._aside and number not in self._listed:
                continue  # what describes it is of the same origin
            known = self._summary(number, listed)
            if known is not None and known.end > listed.end:
                listed = Listed(number, known.first, known.seed, known.end, known.bytes)
            following = [first for one, first in self._firsts.items() if one > number]
            if following:
                listed = msgspec.structs.replace(listed, upto=max(listed.upto, min(following)))
            found.append(listed)
            self._leave_offsets_out(number, listed.end)
            count = listed.end - listed.first
            self._tell(
                "missing", number, f"is gone: messages {listed.first} to {listed.end}", count
            )
        return found

    def _leave_offsets_out(self, number: int, end: int) -> None:
        """The newest one, of which no orderly stop spoke, may have had more messages than is known.

        So that none of their offsets is given again; readers are told of a gap, which is a bound.
        """
        if number == max(self._listed, default=0) and not self._listed[number].bytes:
            self._reached.append(end + STREAM_SKIP_MARGIN)

    def _summary(self, number: int, listed: Listed) -> Summary | None:
        """What the seal or snapshot of a vanished segment says, if it is of that one."""
        for ending in (SEAL, SNAPSHOT):
            found = read_summary(self._disk, f"{self._folder}/{number:08}{ending}")
            if found is not None and listed.seed in (0, found.seed):
                return found
        return None

    def _gone(self, missing: list[Listed], there: list[int]) -> list[tuple[int, int]]:
        """Of those before the first that is kept; what is missing behind it is a gap of the one before."""
        return [
            (one.first, one.end)
            for one in missing
            if one.end > one.first and not any(number < one.generation for number in there)
        ]

    def _look_at_manifest(self, there: list[int]) -> None:
        if self._manifest.bad_lines:
            text = f"the manifest of the shard has {self._manifest.bad_lines} damaged lines"
            self._problems.append(StreamProblem("manifest", self._shard, 0, text))
        if self._bad_drops:
            what = f"{self._folder}/{DROPPED_LOG}"
            text = f"{self._bad_drops} lines of {what} are damaged, or not of this shard"
            self._problems.append(StreamProblem("manifest", self._shard, 0, text))
        if self._unlisted and not self._manifest.bad_lines:
            text = (
                f"the manifest of the shard lacks {len(self._unlisted)} generations that are there"
            )
            self._problems.append(StreamProblem("manifest", self._shard, 0, text))
        holds = any(self._head(number)[1] > SEGMENT_HEAD.size for number in there)
        if not self._manifest.is_there and (holds or len(there) > 1):
            text = "the manifest of the shard is gone: what else is missing cannot be told"
            self._problems.append(StreamProblem("manifest", self._shard, 0, text))

    def _tell(self, kind: str, number: int, text: str, lost: int = 0) -> None:
        text = f"{self._folder}/{number:08}{SEGMENT} {text}"
        self._problems.append(StreamProblem(kind, self._shard, number, text, lost))


def _numbers(names: list[str], ending: str) -> set[int]:
    found = set()
    for name in names:
        stem, _, _ = name.partition(".")
        if name == stem + ending and stem.isdecimal() and not name.endswith(TEMPORARY_SUFFIX):
            found.add(int(stem))
    return found
