"""Room: spark. One stream of an archive against its node: which messages differ, and putting them right.

In a worker: the messages of the ranges that differ are read on both sides, hashed, and compared by offset.
A repair writes anew the files that have rows which do not belong there, without them, and fetches from the
node what is then missing. What the node cannot read any more is left as the archive has it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.core.frames.byte_columns import Numbers
from moorline.core.stream import Stream
from moorline.limits import VERIFY_RANGES_MAX
from moorline.spark.jobs.archive_files import Archive, folder_of
from moorline.spark.jobs.digests import (
    BucketDigests,
    Rows,
    StreamDigests,
    batches_of,
    hashed_rows,
    read_file,
)
from moorline.spark.jobs.manifest import ArchivedFile
from moorline.spark.jobs.node_side import NodeGap, node_rows
from moorline.spark.jobs.parquet import PartWriter, part_writer

MISSING, EXTRA, ALTERED, LOST = "missing", "extra", "altered", "lost"


class NodeBatch(msgspec.Struct, frozen=True):
    """Messages `first` to before `end` of a stream, as its node has them; those of the filters."""

    source: dict[str, str]
    addresses: list[str]
    stream: Stream
    first: int
    end: int
    filters: list[str]


class Ask(msgspec.Struct, frozen=True):
    """A stream that differs in these ranges; with `repaired` as a name, it is put right under it."""

    where: str
    node: NodeBatch
    ranges: list[tuple[int, int]]
    files: list[ArchivedFile]
    repaired: str = ""


class Difference(msgspec.Struct, frozen=True):
    """Messages `first` to before `upto`: missing in the archive, extra, altered, or lost on the node."""

    kind: str
    first: int
    upto: int


class Compared(msgspec.Struct, frozen=True):
    """What differs, counted by kind; the first ranges; what a repair wrote, and what it takes away."""

    stream: Stream
    counts: dict[str, int]
    differences: list[Difference]
    files: list[ArchivedFile] = []
    replaced: list[str] = []
    fetched: int = 0


def digest_node(item: bytes) -> Iterator[StreamDigests]:
    """The buckets of a stream as its node has it; what cannot be read is a problem."""
    batch = msgspec.json.decode(item, type=NodeBatch)
    digests = BucketDigests(batch.first, batch.end)
    problems = []
    for found in _from_node(batch, [(batch.first, batch.end)]):
        if isinstance(found, NodeGap):
            problems.append((f"{found.first}-{found.upto}", found.text))
        else:
            digests.add(hashed_rows(found))
    yield StreamDigests(batch.stream, digests.told(), problems)


class _Sides(NamedTuple):
    """Both sides of the ranges: the node's rows by offset; the archive's with the file of each."""

    node: Rows
    lost: list[tuple[int, int]]
    archive: Rows
    file_of: Numbers
    row_of: Numbers
    unreadable: list[str]
    changed: list[str]


class _Verdict(NamedTuple):
    """Which of the archive's rows do not belong there, and which offsets have to come from the node."""

    is_bad: npt.NDArray[np.bool_]
    needed: Numbers
    offsets: dict[str, Numbers]


def compare_stream(item: bytes) -> Iterator[Compared]:
    ask = msgspec.json.decode(item, type=Ask)
    archive = Archive(ask.where)
    sides = _read(ask, archive)
    verdict = judge(sides.node, sides.lost, sides.archive)
    ranges = {kind: runs_of(offsets) for kind, offsets in verdict.offsets.items()}
    compared = Compared(
        ask.node.stream,
        {kind: len(offsets) for kind, offsets in verdict.offsets.items() if len(offsets)},
        [
            Difference(kind, first, upto)
            for kind, found in ranges.items()
            for first, upto in found[:VERIFY_RANGES_MAX]
        ],
    )
    yield _repaired(ask, archive, sides, verdict, compared) if ask.repaired else compared


def judge(node: Rows, lost: list[tuple[int, int]], archive: Rows) -> _Verdict:
    """Compares by offset. Of several rows of one offset the first that is right stays."""
    offsets = archive.offsets
    places = np.minimum(np.searchsorted(node.offsets, offsets), max(0, len(node.offsets) - 1))
    known = np.zeros(len(offsets), np.bool_)
    right = np.zeros(len(offsets), np.bool_)
    if len(node.offsets):
        known = node.offsets[places] == offsets
        right = known & (node.hashes[places] == archive.hashes).all(axis=1)
    unknown = within(offsets, lost)
    stays = np.zeros(len(offsets), np.bool_)
    candidates = np.flatnonzero(right | unknown)
    stays[candidates[np.unique(offsets[candidates], return_index=True)[1]]] = True
    is_bad = ~stays
    needed = np.setdiff1d(node.offsets, offsets[stays])
    altered = np.intersect1d(needed, offsets[is_bad])
    gone = np.concatenate([np.arange(*one, dtype=np.int64) for one in lost]) if lost else needed[:0]
    return _Verdict(
        is_bad,
        needed,
        {
            MISSING: np.setdiff1d(needed, altered),
            EXTRA: np.sort(offsets[is_bad & ~np.isin(offsets, altered)]),
            ALTERED: altered,
            LOST: np.setdiff1d(gone, offsets[stays]),
        },
    )


def runs_of(offsets: Numbers) -> list[tuple[int, int]]:
    """Sorted offsets as ranges, from the first to before the second."""
    if not len(offsets):
        return []
    cuts = np.flatnonzero(np.diff(offsets) > 1) + 1
    parts = np.split(offsets, cuts)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def within(offsets: Numbers, ranges: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(len(offsets), np.bool_)
    for first, upto in ranges:
        mask |= (offsets >= first) & (offsets < upto)
    return mask


def _read(ask: Ask, archive: Archive) -> _Sides:
    batch = ask.node
    node: list[Rows] = []
    lost: list[tuple[int, int]] = []
    for found in _from_node(batch, ask.ranges):
        if isinstance(found, NodeGap):
            lost.append((found.first, found.upto))
        else:
            node.append(hashed_rows(found))
    parts, files, rows = [], [], []
    unreadable: list[str] = []
    changed: list[str] = []
    for number, file in enumerate(ask.files):
        found_rows, problem = read_file(archive, file)
        if found_rows is None:
            unreadable.append(file.path)
            continue
        if problem:
            changed.append(file.path)
        offsets = found_rows.offsets
        outside = (offsets < batch.first) | (offsets >= batch.end)
        mask = within(offsets, ask.ranges) | outside
        parts.append(found_rows.where(mask))
        rows.append(np.flatnonzero(mask).astype(np.int64))
        files.append(np.full(int(mask.sum()), number, np.int64))
    nothing = np.zeros(0, np.int64)
    return _Sides(
        Rows.joined(node),
        lost,
        Rows.joined(parts),
        np.concatenate([nothing, *files]),
        np.concatenate([nothing, *rows]),
        unreadable,
        changed,
    )


def _from_node(
    batch: NodeBatch, ranges: list[tuple[int, int]]
) -> Iterator[pa.RecordBatch | NodeGap]:
    stream = batch.stream
    for first, upto in ranges:
        yield from node_rows(batch.source, batch.addresses, stream, first, upto, batch.filters)


def _repaired(
    ask: Ask, archive: Archive, sides: _Sides, verdict: _Verdict, compared: Compared
) -> Compared:
    stream = ask.node.stream
    replaced = list(sides.unreadable)
    fetched = 0
    with part_writer(archive, folder_of(ask.repaired, stream), is_proven=True) as writer:
        for number, file in enumerate(ask.files):
            bad = sides.row_of[verdict.is_bad & (sides.file_of == number)]
            # One with other bytes is written anew, rows that are right and all: its footer may tell readers
            # to pass over them.
            if len(bad) or file.path in sides.changed:
                _copy_without(archive, file, bad, writer)
                replaced.append(file.path)
        for found in _from_node(ask.node, runs_of(verdict.needed)):
            if not isinstance(found, NodeGap):
                fetched += found.num_rows
                writer.write(found)
    return msgspec.structs.replace(compared, files=writer.files, replaced=replaced, fetched=fetched)


def _copy_without(archive: Archive, file: ArchivedFile, bad: Numbers, writer: PartWriter) -> None:
    start = 0
    for batch in batches_of(archive, file.path):
        mask = np.ones(batch.num_rows, np.bool_)
        mask[bad[(bad >= start) & (bad < start + batch.num_rows)] - start] = False
        writer.write(batch.filter(pa.array(mask)))
        start += batch.num_rows
