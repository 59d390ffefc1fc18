"""Room: spark. `verify`: an archive against what nodes recorded when they sealed their streams; and repair.

    files ──► digests of 256 ranges of offsets for each stream, in the workers ──► their sum against the seal
    differs ──► the same digests of the node's messages ──► ranges that differ ──► message by message

A stream whose sum is that of its seal is proven without asking the node for a single message. Only streams
that are sealed, and that the archive has come to the end of, can be proven: the others still grow. Every file
that counts must have the bytes that were written, whatever these say: rows may be right, and the statistics
in a footer wrong, by which readers pass over them.
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from moorline.core.sets.digest import Digest
from moorline.core.stream import Stream
from moorline.errors import ConfigError
from moorline.limits import VERIFY_LOOKS_MAX, VERIFY_STREAMS_MAX
from moorline.spark.jobs import tasks
from moorline.spark.jobs.archive_files import Archive, Holdings, SealedStream
from moorline.spark.jobs.archive_nodes import know_nodes
from moorline.spark.jobs.compare import Ask, Compared, NodeBatch, compare_stream, digest_node
from moorline.spark.jobs.digests import (
    Buckets,
    FileBatch,
    StreamDigests,
    differing_ranges,
    digest_files,
    look_at_files,
    merged,
    shared_out,
    total,
    unread_range,
)
from moorline.spark.jobs.manifest import (
    ArchivedFile,
    ArchiveGap,
    Entry,
    by_stream,
    live_files,
    lost_ranges,
    reached,
)
from moorline.spark.jobs.node_side import Told
from moorline.spark.jobs.verify_report import (
    BY_COUNT,
    BY_READING,
    BY_SEAL,
    UNPROVEN,
    FileProblem,
    Report,
    StreamReport,
)
from moorline.spark.jobs.watching import Seen, nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRAY = "is in no entry of the manifest: nobody counts it, and `moor pipeline clean` removes it"
EDITED = "is not as it was written: nobody believes it"
CONFLICT = "its node tells another digest of it than the archive has kept: was one of them edited?"

Seals = dict[Stream, SealedStream]
Files = dict[Stream, list[ArchivedFile]]


class VerifyOptions(msgspec.Struct, frozen=True):
    """Which archive, the nodes as options of the data source, and whether to put things right."""

    where: str
    source: dict[str, str]
    repair: bool = False


def verify(
    spark: "SparkSession",
    options: VerifyOptions,
    nodes: Told,
    seen: Seen = nobody,
) -> Report:
    """Compares; with `repair` also puts right, and compares again. `nodes` is what they tell now."""
    archive, holdings = opened(options)
    know_nodes(archive, nodes.ids)
    if options.repair:
        for path in archive.edited_seals():
            archive.set_aside(path)
    archive.note_seals(nodes.seals)
    checking = _Checking(spark, archive, holdings, options.source, nodes, seen)
    name = f"repaired-{uuid.uuid4().hex[:12]}"
    report, compared = checking.run(repaired=name if options.repair else "")
    if not options.repair:
        return report
    files = [file for one in compared for file in one.files]
    replaced = [path for one in compared for path in one.replaced]
    if not files and not replaced:
        return report
    archive.add(Entry(name, files, replaced=replaced))
    again, _ = checking.run(repaired="")
    archive.clean()
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


class _Found(NamedTuple):
    """What was found of some streams; buckets only of those that are not what their seals say."""

    sums: dict[Stream, Digest]
    buckets: dict[Stream, Buckets]
    proven: set[Stream]
    compared: dict[Stream, Compared]
    problems: dict[str, str]
    """What is wrong with files, by path."""


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
        self._silent = set(nodes.silent)
        self._told = {seal.stream: seal for seal in nodes.seals}
        self._seen = seen

    def run(self, *, repaired: str) -> tuple[Report, list[Compared]]:
        """Some streams after the others: the driver does not hold the digests of all of them at once."""
        entries = self._archive.entries()
        strays = self._archive.strays(entries)
        ends, lost = reached(entries), lost_ranges(entries)
        known = self._archive.seals()
        complete = {
            stream: seal
            for stream, seal in known.items()
            if seal.end <= ends.get(str(stream.shard), 0) and seal.end > seal.first
        }
        files = by_stream(live_files(entries))
        reports: list[StreamReport] = []
        compared: list[Compared] = []
        problems = dict.fromkeys(strays, STRAY)
        problems |= dict.fromkeys(self._archive.edited_seals(), EDITED)
        problems |= {
            str(stream): CONFLICT
            for stream, seal in known.items()
            if self._told.get(stream, seal).digest != seal.digest
        }
        for some in _slices(complete, VERIFY_STREAMS_MAX):
            found = self._checked(
                some, {stream: files.get(stream, []) for stream in some}, repaired
            )
            reports += [
                self._report(seal, found, lost.get(str(stream.shard), []))
                for stream, seal in some.items()
            ]
            compared += found.compared.values()
            problems |= found.problems
        early = self._looked_at(
            {stream: files[stream] for stream in files.keys() - complete.keys()}
        )
        report = Report(
            reports,
            [
                FileProblem(
                    self._archive.uri(path), text, path in early, text in (STRAY, EDITED, CONFLICT)
                )
                for path, text in sorted((problems | early).items())
            ],
            len(known) - len(complete),
            sum(one.archived for one in reports),
            sum(file.rows for stream in files.keys() - known.keys() for file in files[stream]),
        )
        return report, compared

    def _checked(self, seals: Seals, files: Files, repaired: str) -> _Found:
        """The archive's side; where it is not what was sealed, the node's; and then message by message."""
        buckets, problems, changed = self._archived(seals, files)
        sums = {stream: total(buckets.get(stream, {})) for stream in seals}
        differing = {
            stream: buckets.get(stream, {})
            for stream, seal in seals.items()
            if sums[stream] != seal.expected()
        }
        here = {stream: seals[stream] for stream in differing if stream in self._told}
        nodes, unread = self._on_nodes(here)
        proven = {
            stream
            for stream in here
            if stream not in unread and total(nodes.get(stream, {})) == sums[stream]
        }
        self._keep_chosen(here, proven, nodes)
        asks = [
            self._ask(seal, differing[stream], nodes.get(stream, {}), unread, files, repaired)
            for stream, seal in here.items()
            if stream not in proven
        ]
        if repaired:
            # Files whose rows are right and whose bytes are not: written anew, and no node is asked.
            asks += [
                Ask(self._archive.where, self._node_batch(seal), [], files[stream], repaired)
                for stream, seal in seals.items()
                if (stream not in differing or stream in proven)
                and any(file.path in changed for file in files[stream])
            ]
        compared = tasks.run(self._spark, compare_stream, asks, Compared, self._seen)
        found = {one.stream: one for one in compared}
        return _Found(sums, differing, proven, found, problems | changed)

    # --- both sides' digests ----------------------------------------------------------------------

    def _archived(
        self, complete: Seals, files: Files
    ) -> tuple[dict[Stream, Buckets], dict[str, str], dict[str, str]]:
        """The buckets of every stream, files that cannot be used, and files that can but were changed."""
        found: dict[Stream, Buckets] = {}
        problems: dict[str, str] = {}
        changed: dict[str, str] = {}
        waiting = set(complete)
        for _ in range(VERIFY_LOOKS_MAX):
            items = [
                FileBatch(
                    self._archive.where,
                    stream,
                    complete[stream].first,
                    complete[stream].end,
                    some,
                )
                for stream in sorted(waiting)
                for some in shared_out(files.get(stream, []))
            ]
            results = tasks.run(self._spark, digest_files, items, StreamDigests, self._seen)
            found |= merged(results)
            changed |= {path: text for one in results for path, text in one.changed}
            bad = {path: text for one in results for path, text in one.problems}
            if not bad:
                break
            # A compaction may have replaced a file while we looked: then it is no problem at all.
            now = by_stream(self._archive.live())
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
        return found, problems, changed

    def _looked_at(self, files: Files) -> dict[str, str]:
        """Files of streams that cannot be proven yet, with what is wrong with their bytes."""
        items = [
            FileBatch(self._archive.where, stream, 0, 0, part)
            for stream, some in files.items()
            for part in shared_out(some)
        ]
        results = tasks.run(self._spark, look_at_files, items, StreamDigests, self._seen)
        found = {path: text for one in results for path, text in one.problems}
        if not found:
            return {}
        # One that a compaction replaced meanwhile is no problem.
        counting = {file.path for file in self._archive.live()}
        return {path: text for path, text in found.items() if path in counting}

    def _on_nodes(
        self, streams: Seals
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

    def _keep_chosen(self, here: Seals, proven: set[Stream], nodes: dict[Stream, Buckets]) -> None:
        """The digests of the topics that this archive is of: the next verify need not read the node."""
        self._archive.note_seals(
            msgspec.structs.replace(here[stream], chosen=str(total(nodes.get(stream, {}))))
            for stream in proven
        )

    def _ask(
        self,
        seal: SealedStream,
        archive: Buckets,
        node: Buckets,
        unread: dict[Stream, list[tuple[str, str]]],
        files: Files,
        repaired: str,
    ) -> Ask:
        """One stream, message by message where its digests differ."""
        gaps = [unread_range(text) for text, _ in unread.get(seal.stream, [])]
        return Ask(
            self._archive.where,
            self._node_batch(seal),
            differing_ranges(seal.first, seal.end, archive, node, gaps),
            files[seal.stream],
            repaired,
        )

    def _report(
        self, seal: SealedStream, found: _Found, lost_of_shard: list[ArchiveGap]
    ) -> StreamReport:
        stream = seal.stream
        differs, is_proven = stream in found.buckets, stream in found.proven
        is_here, archived = stream in self._told, found.sums[stream].count
        expected = archived if is_proven else seal.expected().count
        one = found.compared.get(stream)
        lost = 0 if is_here or not differs else _overlap(seal, lost_of_shard)
        # Nobody can compute the digest of a part. But nothing else is missing than what was let go.
        is_explained = lost > 0 and (
            archived + lost == expected or (not archived and lost == seal.end - seal.first)
        )
        if not differs:
            proof = BY_SEAL
        elif is_explained:
            proof = BY_COUNT
        else:
            proof = BY_READING if is_proven or one is not None else UNPROVEN
        return StreamReport(
            str(stream),
            seal.first,
            seal.end,
            expected,
            archived,
            not differs or is_proven or is_explained,
            proof,
            is_here,
            not is_here and seal.node in self._silent,
            lost,
            one.counts if one else {},
            one.differences if one else [],
        )


def _slices(seals: Seals, size: int) -> Iterator[Seals]:
    """In the order of their names."""
    streams = sorted(seals)
    for first in range(0, len(streams), size):
        yield {stream: seals[stream] for stream in streams[first : first + size]}


def _overlap(seal: SealedStream, lost: list[ArchiveGap]) -> int:
    return sum(max(0, min(one.upto, seal.end) - max(one.first, seal.first)) for one in lost)
