"""Room: spark. The nodes' side of a proof: what they sealed, and the messages of one stream.

Nodes are named by the options of the data source: `address` with its certificates, or `path` for a data
folder or a copy of one.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from moorline.core.stream import Stream
from moorline.errors import CallFailed, ConnectionLost, Untrusted
from moorline.journal.read_only_disk import ReadOnlyDisk
from moorline.journal.streams.folder import STREAMS, FolderStreams
from moorline.journal.streams.generation import SEAL
from moorline.journal.streams.layout import folder_of, path_of
from moorline.journal.streams.seal import read_summary
from moorline.spark import runs
from moorline.spark.frames import Batches
from moorline.spark.jobs.archive_files import SealedStream
from moorline.spark.jobs.parquet import SCHEMA_AS_READ, as_archived
from moorline.spark.node_link import Links
from moorline.spark.options import reading_endpoint_of
from moorline.spark.streams import Streams, opened
from moorline.wire.stream_file import ClusterDescribed, DescribeCluster


class Told(msgspec.Struct, frozen=True):
    """The sealed streams, where each node is, the nodes that did not answer, and the ids of data folders."""

    seals: list[SealedStream]
    addresses: dict[str, list[str]]
    silent: list[str]
    ids: dict[str, str] = {}


class NodeGap(NamedTuple):
    """Messages `first` to before `upto` cannot be read on the node."""

    first: int
    upto: int
    text: str


def ask(source: dict[str, str]) -> Told:
    """What all nodes have sealed up to now."""
    if source.get("path"):
        return Told(_of_folder(source), {}, [], node_ids(source))
    endpoint = reading_endpoint_of(source)
    links = Links(endpoint)
    try:
        told = links.call((endpoint.address,), DescribeCluster, ClusterDescribed)
        addresses = {name: list(known) for name, known, _ in told.nodes}
        # It was reached by this one, whatever it thinks that it listens on.
        addresses[told.node] = [endpoint.address]
        seals: list[SealedStream] = []
        silent = [name for name, _, is_alive in told.nodes if not is_alive and name != told.node]
        works = {
            node: links.all_streams(tuple(known))
            for node, known in addresses.items()
            if node not in silent
        }
        for node, described in links.together(works).items():
            if isinstance(described, (ConnectionLost, CallFailed)):
                if isinstance(described, Untrusted):
                    raise described
                silent.append(node)
            elif isinstance(described, BaseException):
                raise described
            else:
                seals += [SealedStream.of(one) for one in described if one.digest]
        return Told(seals, addresses, silent, told.ids)
    finally:
        links.close()


def node_ids(source: dict[str, str]) -> dict[str, str]:
    """The id of each node's data folder, by the node's home, as far as they can be told."""
    if source.get("path"):
        streams = FolderStreams(source["path"], source.get("node", ""))
        return {streams.home: streams.id()} if streams.id() else {}
    endpoint = reading_endpoint_of(source)
    links = Links(endpoint)
    try:
        return links.call((endpoint.address,), DescribeCluster, ClusterDescribed).ids
    finally:
        links.close()


def check_reached(source: dict[str, str]) -> None:
    """Raises if the node does not answer. One that refuses is there: what it allows, the job finds out."""
    endpoint = reading_endpoint_of(source)
    links = Links(endpoint)
    try:
        with contextlib.suppress(CallFailed):
            links.call((endpoint.address,), DescribeCluster, ClusterDescribed)
    finally:
        links.close()


def _of_folder(source: dict[str, str]) -> list[SealedStream]:
    streams = FolderStreams(source["path"], source.get("node", ""))
    root = Path(source["path"])
    disk = ReadOnlyDisk(root / STREAMS if (root / STREAMS).is_dir() else root)
    seals = []
    for stream, first, end, is_sealed in streams.extents():
        path = path_of(folder_of(stream.shard_number), stream.generation) + SEAL
        summary = read_summary(disk, path) if is_sealed else None
        if summary is not None:
            seals.append(SealedStream(*stream, first, end, str(summary.digest)))
    return seals


def opened_streams(source: dict[str, str]) -> Streams:
    """Whoever opens them closes them."""
    return opened(source.get("path", ""), source.get("node", ""), reading_endpoint_of(source))


def node_rows(
    source: dict[str, str],
    addresses: list[str],
    stream: Stream,
    first: int,
    upto: int,
    filters: list[str],
) -> Iterator[pa.RecordBatch | NodeGap]:
    """In a worker: messages `first` to before `upto` with all columns of an archive; those of the filters."""
    streams = opened_streams(source)
    made = Batches(SCHEMA_AS_READ, filters)
    try:
        segment = streams.segment(stream, tuple(addresses))
        if segment is None:
            yield NodeGap(first, upto, "the node has dropped it")
            return
        try:
            for block in runs.runs(segment, first, upto, verify=True):
                if isinstance(block, runs.ReadGap):
                    text = f"{segment.name}: damaged at byte {block.position}"
                    yield NodeGap(block.first, block.upto, text)
                    continue
                batch = made.batch(block, str(stream))
                if batch is not None:
                    yield as_archived(batch)
        finally:
            segment.close()
    finally:
        streams.close()
