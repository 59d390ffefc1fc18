"""Room: spark. `verify`: an archive against what nodes recorded when they sealed their streams; and repair.

    files ──► digests of 256 ranges of offsets for each stream, in the workers ──► their sum against the seal
    differs ──► the same digests of the node's messages ──► ranges that differ ──► message by message

A stream whose sum is that of its seal is proven without asking the node for a single message. Only streams
that are sealed, and that the archive has come to the end of, are looked at: the others still grow.
"""

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from moorline.core.digest import Digest
from moorline.core.stream import Stream
from moorline.errors import ConfigError, DriftFound
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import (
    Archive,
    ArchivedFile,
    Entry,
    Holdings,
    SealedStream,
    live_files,
    reached,
)
from moorline.spark.jobs.compare import (
    LOST,
    Ask,
    Compared,
    Difference,
    NodeBatch,
    compare_stream,
    digest_node,
)
from moorline.spark.jobs.digests import (
    BUCKETS,
    FileBatch,
    StreamDigests,
    bucket_range,
    digest_files,
    merged,
    total,
)
from moorline.spark.jobs.node_side import Told
from moorline.spark.jobs.watching import Seen, nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 64 * 1024 * 1024
"""Bytes of files that one task reads: some tenths of a second of work."""

LOOKS_MAX = 3
"""Times that a stream is looked at again because a compaction moved its files meanwhile."""

BY_SEAL, BY_READING, UNPROVEN = "seal", "reading", "none"

Buckets = dict[int, Digest]


class VerifyOptions(msgspec.Struct, frozen=True):
    """Which archive, the nodes as options of the data source, and whether to put things right."""

    where: str
    source: dict[str, str]
    repair: bool = False


class StreamReport(msgspec.Struct, frozen=True):
    """One sealed stream: what should be there, what is, and how that is known."""

    stream: str
    first: int
    end: int
    sealed: int
    archived: int
    is_equal: bool
    proof: str
    is_on_node: bool
    counts: dict[str, int] = {}
    differences: list[Difference] = []


class FileProblem(msgspec.Struct, frozen=True):
    """A file that is not as it was written."""

    path: str
    text: str


class Report(msgspec.Struct, frozen=True):
    """All streams by name; `behind` are sealed and not archived to their end yet."""

    streams: list[StreamReport]
    files: list[FileProblem]
    behind: int
    messages: int
    fetched: int = 0
    removed: int = 0

    @property
    def differing(self) -> list[StreamReport]:
        return [one for one in self.streams if not one.is_equal]

    @property
    def is_equal(self) -> bool:
        return not self.differing and not self.files


def verify(
    spark: "SparkSession",
    options: VerifyOptions,
    nodes: Told,
    seen: Seen = nobody,
) -> Report:
    """Compares; with `repair` also puts right, and compares again. `nodes` is what they tell now."""
    archive, holdings = opened(options)
    archive.note_seals(nodes.seals)
    checking = _Checking(spark, archive, holdings, options.source, nodes, seen)
    name = f"repaired-{uuid.uuid4().hex[:12]}"
    report, compared = checking.run(repaired=name if options.repair else "")
    if not any(one.files or one.replaced for one in compared):
        return report
    files = [file for one in compared for file in one.files]
    replaced = [path for one in compared for path in one.replaced]
    archive.add(Entry(name, files, replaced=replaced))
    archive.clean()
    again, _ = checking.run(repaired="")
    return msgspec.structs.replace(
        again,
        fetched=sum(one.fetched for one in compared),
        removed=sum(one.counts.get("extra", 0) for one in compared),
    )


def opened(options: VerifyOptions) -> tuple[Archive, Holdings]:
    """The archive, if there is one and it is Parquet."""
    archive = Archive(options.where)
    holdings = archive.holdings()
    if holdings.format != "parquet":
        raise ConfigError(
            f"the archive at {archive.where} is {holdings.format}: verify reads parquet only"
        )
    return archive, holdings


class _Checking:
    """One archive against one set of seals."""

    def __init__(
        self,
        spark: "SparkSession",
        archive: Archive,
        holdings: Holdings,
        source: dict[str, str],
        nodes: Told,
        seen: Seen,
    ) -> None:
        self._spark = spark
        self._archive = archive
        self._filters = holdings.topics
        self._source = source
        self._addresses = nodes.addresses
        self._told = {seal.stream for seal in nodes.seals}
        self._seen = seen

    def run(self, *, repaired: str) -> tuple[Report, list[Compared]]:
        entries = self._archive.entries()
        ends = reached(entries)
        known = self._archive.seals()
        complete = {
            stream: seal
            for stream, seal in known.items()
            if seal.end <= ends.get(str(stream.line), 0) and seal.end > seal.first
        }
        files = _by_stream(live_files(entries))
        found, problems = self._archived(complete, files)
        differing = {
            stream: seal
            for stream, seal in complete.items()
            if total(found.get(stream, {})) != seal.expected()
        }
        here = {stream: seal for stream, seal in differing.items() if stream in self._told}
        nodes = self._on_nodes(here)
        proven = {
            stream
            for stream in here
            if stream not in nodes[1]
            and total(nodes[0].get(stream, {})) == total(found.get(stream, {}))
        }
        self._keep_chosen(here, proven, nodes[0])
        compared = self._compared(
            {stream: seal for stream, seal in here.items() if stream not in proven},
            found,
            nodes,
            files,
            repaired,
        )
        by_stream = {one.stream: one for one in compared}
        reports = [
            self._report(
                seal, found.get(stream, {}), stream in differing, stream in proven, by_stream
            )
            for stream, seal in sorted(complete.items())
        ]
        report = Report(
            reports,
            [FileProblem(self._archive.uri(path), text) for path, text in sorted(problems.items())],
            len(known) - len(complete),
            sum(one.archived for one in reports),
        )
        return report, compared

    # --- both sides' digests ----------------------------------------------------------------------

    def _archived(
        self, complete: dict[Stream, SealedStream], files: dict[Stream, list[ArchivedFile]]
    ) -> tuple[dict[Stream, Buckets], dict[str, str]]:
        """The buckets of every stream, and the files that cannot be used."""
        found: dict[Stream, Buckets] = {}
        problems: dict[str, str] = {}
        waiting = set(complete)
        for _ in range(LOOKS_MAX):
            items = [
                FileBatch(
                    self._archive.where,
                    stream,
                    complete[stream].first,
                    complete[stream].end,
                    some,
                )
                for stream in sorted(waiting)
                for some in _shared(files.get(stream, []))
            ]
            results = tasks.run(self._spark, digest_files, items, StreamDigests, self._seen)
            found |= merged(results)
            bad = {path: text for one in results for path, text in one.problems}
            if not bad:
                break
            # A compaction may have replaced a file while we looked: then it is no problem at all.
            now = _by_stream(self._archive.live())
            waiting = {
                stream
                for stream in waiting
                if any(file.path in bad for file in files.get(stream, []))
                and now.get(stream) != files.get(stream)
            }
            problems |= {
                file.path: bad[file.path]
                for some in files.values()
                for file in some
                if file.path in bad and file.stream not in waiting
            }
            if not waiting:
                break
            for stream in waiting:
                found.pop(stream, None)
                files[stream] = now.get(stream, [])
        return found, problems

    def _on_nodes(
        self, streams: dict[Stream, SealedStream]
    ) -> tuple[dict[Stream, Buckets], dict[Stream, list[tuple[str, str]]]]:
        """The buckets as the nodes have them, and what they cannot read."""
        items = [self._node_batch(seal) for seal in streams.values()]
        results = tasks.run(self._spark, digest_node, items, StreamDigests, self._seen)
        unread = {one.stream: one.problems for one in results if one.problems}
        return merged(results), unread

    def _node_batch(self, seal: SealedStream) -> NodeBatch:
        return NodeBatch(
            self._source,
            self._addresses.get(seal.node, []),
            seal.stream,
            seal.first,
            seal.end,
            self._filters,
        )

    def _keep_chosen(
        self, here: dict[Stream, SealedStream], proven: set[Stream], nodes: dict[Stream, Buckets]
    ) -> None:
        """The digests of the topics that this archive is of: the next verify need not read the node."""
        self._archive.note_seals(
            msgspec.structs.replace(here[stream], chosen=str(total(nodes.get(stream, {}))))
            for stream in proven
        )

    # --- message by message -----------------------------------------------------------------------

    def _compared(
        self,
        streams: dict[Stream, SealedStream],
        found: dict[Stream, Buckets],
        nodes: tuple[dict[Stream, Buckets], dict[Stream, list[tuple[str, str]]]],
        files: dict[Stream, list[ArchivedFile]],
        repaired: str,
    ) -> list[Compared]:
        digests, unread = nodes
        items = [
            Ask(
                self._archive.where,
                self._node_batch(seal),
                _ranges(
                    seal,
                    found.get(stream, {}),
                    digests.get(stream, {}),
                    [_range(text) for text, _ in unread.get(stream, [])],
                ),
                files.get(stream, []),
                repaired,
            )
            for stream, seal in streams.items()
        ]
        return tasks.run(self._spark, compare_stream, items, Compared, self._seen)

    def _report(
        self,
        seal: SealedStream,
        buckets: Buckets,
        differs: bool,
        is_proven: bool,
        compared: dict[Stream, Compared],
    ) -> StreamReport:
        one = compared.get(seal.stream)
        # A message that the node has lost and the archive never had is nobody's to bring back.
        is_equal = not differs or is_proven
        proof = BY_SEAL if not differs else BY_READING if is_proven or one is not None else UNPROVEN
        expected = total(buckets) if is_proven else seal.expected()
        return StreamReport(
            str(seal.stream),
            seal.first,
            seal.end,
            expected.count,
            total(buckets).count,
            is_equal,
            proof,
            seal.stream in self._told,
            one.counts if one else {},
            one.differences if one else [],
        )


def check(report: Report) -> None:
    """Raises if something differs, with what to do next."""
    if report.is_equal:
        return
    differing = report.differing
    gone = [one.stream for one in differing if not one.is_on_node]
    lost = sum(one.counts.get(LOST, 0) for one in differing)
    parts = [f"{len(differing)} of {len(report.streams)} streams differ from their seals"]
    if report.files:
        parts.append(f"{len(report.files)} files are damaged, the first is {report.files[0].path}")
    if gone:
        parts.append(f"{', '.join(gone[:3])}: no node has it any more, so it cannot be repaired")
    if lost:
        parts.append(f"{lost} messages cannot be read on their node either")
    if len(gone) < len(differing) and not lost:
        parts.append("--repair fetches what is missing")
    raise DriftFound("; ".join(parts))


def _by_stream(files: Iterable[ArchivedFile]) -> dict[Stream, list[ArchivedFile]]:
    streams: dict[Stream, list[ArchivedFile]] = {}
    for file in files:
        streams.setdefault(file.stream, []).append(file)
    return streams


def _shared(files: list[ArchivedFile]) -> list[list[ArchivedFile]]:
    """Parts of about the same work."""
    parts: list[list[ArchivedFile]] = []
    size = TASK_BYTES
    for file in files:
        if size >= TASK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.size_bytes
    return parts


def _range(text: str) -> tuple[int, int]:
    """As `digest_node` names what it could not read."""
    first, _, upto = text.partition("-")
    return int(first), int(upto)


def _ranges(
    seal: SealedStream, one: Buckets, other: Buckets, unread: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Offsets of the buckets that differ or cannot be read whole, those next to each other together."""
    ranges: list[tuple[int, int]] = []
    for bucket in range(BUCKETS):
        first, upto = bucket_range(bucket, seal.first, seal.end)
        is_whole = not any(start < upto and stop > first for start, stop in unread)
        if is_whole and one.get(bucket) == other.get(bucket):
            continue
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], upto)
        elif first < upto:
            ranges.append((first, upto))
    return ranges
