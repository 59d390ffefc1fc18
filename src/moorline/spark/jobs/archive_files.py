"""Room: spark. An archive of topics: which files there are, which of them count, and what nodes sealed.

    archive/_moorline/archive.json            what it holds: format and topics
    archive/_moorline/entries/NAME.json       the manifest: one entry for each writing
    archive/_moorline/seals/NAME.json         counts and digests of sealed streams, as their nodes told them
    archive/_moorline/checkpoint/             Spark's, unless it is put elsewhere
    archive/batch=NAME/node=…/shard=…/generation=…/part-….parquet

An entry names the files that a writing brought, and those that they take the place of. A file counts if an
entry names it and no entry has replaced it. So an entry is the moment at which a batch, a compaction or a
repair happens, all of it at once; and jobs that write at the same time do not write to the same place.
Entries are small files that are written whole and never changed, through pyarrow.fs: a folder, S3, HDFS.

Removing comes behind: first the files that are replaced, then entries that say nothing any more. A crash in
between leaves files that nobody counts, and the next `clean` goes on.
"""

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from moorline.core.digest import Digest
from moorline.core.stream import Stream
from moorline.errors import ConfigError, DriftFound
from moorline.wire.topic import StreamFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN = "_moorline"
PARTITIONS = ("node", "shard", "generation")
COLUMNS = (
    "offset",
    "timestamp",
    "ttl_s",
    "flags",
    "topic",
    "key",
    "raw_headers",
    "producer",
    "sequence",
    "value",
)
"""All that the content of a message is made of."""

MAX_US = (1 << 63) - 1

Value = TypeVar("Value")

ORPHAN_S = 86_400
"""Age at which a file that no entry names is taken for the leftover of a crash: no task runs that long."""


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

    @property
    def stream(self) -> Stream:
        return Stream(self.node, self.shard, self.generation)


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
    lost: list[str] = []


class Holdings(msgspec.Struct, frozen=True):
    """What an archive is of; fixed when it is made."""

    format: str
    topics: list[str]
    version: int = 1


class SealedStream(msgspec.Struct, frozen=True):
    """What a node said of a stream that grows no more.

    `digest` is of all its messages. Where an archive takes only some topics, `chosen` is the digest of
    those, once somebody has read the stream to compute it.
    """

    node: str
    shard: int
    generation: int
    first: int
    end: int
    digest: str
    chosen: str | None = None

    @staticmethod
    def of(facts: StreamFacts) -> "SealedStream":
        return SealedStream(
            facts.node, facts.shard, facts.generation, facts.first, facts.end, facts.digest.hex()
        )

    @property
    def stream(self) -> Stream:
        return Stream(self.node, self.shard, self.generation)

    def expected(self) -> Digest:
        return Digest.from_bytes(bytes.fromhex(self.chosen or self.digest))


class Archive:
    """A folder, or a place that pyarrow.fs can write to, by its path or URI."""

    def __init__(self, where: str) -> None:
        from pyarrow import fs

        self.where = where.rstrip("/") or where
        scheme, colon, _ = where.partition("://")
        try:
            if not colon:
                import os

                self.files: Any = fs.LocalFileSystem()
                self.root = os.path.abspath(where)
            else:
                uri = where.replace("s3a://", "s3://", 1) if scheme == "s3a" else where
                self.files, self.root = fs.FileSystem.from_uri(uri)
        except Exception as error:
            raise ConfigError(f"{where!r} is no place for an archive: {error}") from error
        self.root = self.root.rstrip("/")

    # --- what it is -------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> str:
        return f"{self.where}/{OWN}/checkpoint"

    def holdings(self) -> Holdings:
        found = self._read(f"{OWN}/archive.json")
        if found is None:
            raise ConfigError(
                f"there is no archive at {self.where}: `moor pipeline archive` makes one"
            )
        return self._decoded(found, Holdings, f"{OWN}/archive.json")

    def open(self, wanted: Holdings) -> Holdings:
        """Makes it, or refuses to go on with something else than it is of."""
        found = self._read(f"{OWN}/archive.json")
        if found is None:
            self._write(f"{OWN}/archive.json", wanted)
            return wanted
        known = self._decoded(found, Holdings, f"{OWN}/archive.json")
        if known != wanted:
            raise ConfigError(
                f"the archive at {self.where} is {known.format} of {','.join(known.topics)}, not "
                f"{wanted.format} of {','.join(wanted.topics)}: give another folder, or the same options"
            )
        return known

    # --- the manifest -----------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        entries = []
        for path in self._listed(f"{OWN}/entries"):
            found = self._read(path)
            # A clean of another job may have been faster.
            if found is not None:
                entries.append(self._decoded(found, Entry, path))
        return entries

    def has_entry(self, name: str) -> bool:
        return self._read(f"{OWN}/entries/{name}.json") is not None

    def add(self, entry: Entry) -> None:
        """From now on its files count, and those that it replaces do not."""
        self._write(f"{OWN}/entries/{entry.name}.json", entry)

    def live(self) -> list[ArchivedFile]:
        """The files that count, by path."""
        return live_files(self.entries())

    def clean(self) -> int:
        """Removes what is replaced, and what a crash left; how many files."""
        entries = self.entries()
        removed = 0
        for path in sorted({path for entry in entries for path in entry.replaced}):
            removed += self._remove(path)
        for name in idle_entries(entries):
            self._remove(f"{OWN}/entries/{name}.json")
        return removed + self._clean_orphans(entries)

    def _clean_orphans(self, entries: list[Entry]) -> int:
        known = {file.path for entry in entries for file in entry.files}
        oldest_ns = time.time_ns() - ORPHAN_S * 10**9
        removed = 0
        for path, changed_ns in self._data_files(""):
            if path not in known and changed_ns < oldest_ns:
                removed += self._remove(path)
        return removed

    # --- seals ------------------------------------------------------------------------------------

    def seals(self) -> dict[Stream, SealedStream]:
        """The newest word about each stream."""
        known: dict[Stream, SealedStream] = {}
        for path in self._listed(f"{OWN}/seals"):
            found = self._read(path)
            for seal in self._decoded(found, list[SealedStream], path) if found else []:
                known[seal.stream] = seal
        return known

    def note_seals(self, told: Iterable[SealedStream]) -> None:
        """Keeps those that are new, so that they are known when retention has taken the streams."""
        known = self.seals()
        new = [seal for seal in told if _adds(seal, known.get(seal.stream))]
        if new:
            # Names in the order of time: what was said last is read last.
            self._write(f"{OWN}/seals/{time.time_ns():020}-{uuid.uuid4().hex[:8]}.json", new)

    # --- data -------------------------------------------------------------------------------------

    def files_in(self, folder: str) -> list[ArchivedFile]:
        """The Parquet files below a folder, with what their footers say."""
        found = []
        for path, _ in self._data_files(folder):
            if path.endswith(".parquet"):
                found.append(self.described(path))
        return found

    def described(self, path: str) -> ArchivedFile:
        import pyarrow.parquet as pq

        size = self.files.get_file_info(self.full(path)).size
        with self.files.open_input_file(self.full(path)) as source:
            footer = pq.ParquetFile(source).metadata
        offsets = _statistics(footer, "offset")
        times = [
            (int(one.min.timestamp() * 1_000_000) - 1, int(one.max.timestamp() * 1_000_000) + 1)
            for one in _statistics(footer, "timestamp")
        ]
        stream = stream_of(path)
        return ArchivedFile(
            path,
            footer.num_rows,
            size,
            stream.node,
            stream.shard,
            stream.generation,
            min((one.min for one in offsets), default=0),
            max((one.max for one in offsets), default=-1),
            min((first for first, _ in times), default=0),
            max((last for _, last in times), default=MAX_US),
        )

    def full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def uri(self, path: str) -> str:
        """As Spark names it."""
        return f"{self.where}/{path}" if "://" in self.where else self.full(path)

    def make_folder(self, path: str) -> None:
        self.files.create_dir(self.full(path), recursive=True)

    def read_own(self, name: str) -> bytes | None:
        return self._read(f"{OWN}/{name}")

    def write_own(self, name: str, value: object) -> None:
        self._write(f"{OWN}/{name}", value)

    # --- the disk ---------------------------------------------------------------------------------

    def _data_files(self, folder: str) -> Iterator[tuple[str, int]]:
        from pyarrow import fs

        below = self.full(folder) if folder else self.root
        selector = fs.FileSelector(below, allow_not_found=True, recursive=True)
        for info in sorted(self.files.get_file_info(selector), key=lambda info: str(info.path)):
            path = str(info.path)[len(self.root) + 1 :]
            parts = path.split("/")
            if info.is_file and not any(part.startswith(("_", ".")) for part in parts):
                yield path, int(info.mtime_ns or 0)

    def _listed(self, folder: str) -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(self.full(folder), allow_not_found=True)
        names = sorted(
            info.base_name for info in self.files.get_file_info(selector) if info.is_file
        )
        return [f"{folder}/{name}" for name in names if name.endswith(".json")]

    def _read(self, path: str) -> bytes | None:
        try:
            with self.files.open_input_stream(self.full(path)) as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None

    def _write(self, path: str, value: object) -> None:
        """Whole or not at all: beside it first, then under its name."""
        full = self.full(path)
        self.files.create_dir(full.rpartition("/")[0], recursive=True)
        beside = f"{full}.{uuid.uuid4().hex}.new"
        with self.files.open_output_stream(beside) as target:
            target.write(msgspec.json.encode(value))
        self.files.move(beside, full)

    def _remove(self, path: str) -> int:
        try:
            self.files.delete_file(self.full(path))
        except FileNotFoundError:
            return 0
        self._remove_checksum(path)
        folder = path.rpartition("/")[0]
        # Folders that are empty now, from the stream's up; object stores have none.
        while folder and not folder.startswith(OWN):
            with contextlib.suppress(OSError):
                if self._is_filled(folder):
                    break
                self.files.delete_dir(self.full(folder))
            folder = folder.rpartition("/")[0]
        return 1

    def _remove_checksum(self, path: str) -> None:
        """Hadoop writes one beside every file of a local folder."""
        folder, _, name = path.rpartition("/")
        with contextlib.suppress(OSError):
            self.files.delete_file(self.full(f"{folder}/.{name}.crc"))

    def _is_filled(self, folder: str) -> bool:
        from pyarrow import fs

        selector = fs.FileSelector(self.full(folder), allow_not_found=True)
        marks = ("_SUCCESS", "._SUCCESS.crc")
        return any(info.base_name not in marks for info in self.files.get_file_info(selector))

    def _decoded(self, data: bytes, kind: type[Value], path: str) -> Value:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise DriftFound(
                f"{self.uri(path)} is not as it was written ({error}): bring it back from a copy"
            ) from error


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

    One may go when none of its files counts and nobody else names a file that it replaces. The newest
    batch of a query stays: Spark may ask for it again, and its entry says that it is there.
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
        ]
        if not idle:
            return gone
        for name in idle:
            del left[name]
        gone += idle


def stream_of(path: str) -> Stream:
    """From the folders that a file is in."""
    parts = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    try:
        return Stream(unquote(parts["node"]), int(parts["shard"]), int(parts["generation"]))
    except (KeyError, ValueError) as error:
        raise DriftFound(f"{path} is not where a file of a stream would be") from error


def folder_of(batch: str, stream: Stream) -> str:
    """Where a file of that stream goes; escaped as Spark does, and reads it."""
    node = quote(stream.node, safe="-_.~")
    return f"batch={batch}/node={node}/shard={stream.shard}/generation={stream.generation}"


def archived(spark: "SparkSession", where: str) -> "DataFrame":
    """An archive as a table: the files that count, with their streams as columns."""
    archive = Archive(where)
    return frame_of(spark, archive, archive.live())


def frame_of(spark: "SparkSession", archive: Archive, files: Iterable[ArchivedFile]) -> "DataFrame":
    paths = [archive.uri(file.path) for file in files]
    schema = (
        "offset long, timestamp timestamp, ttl_s int, flags int, topic string, key binary, "
        "raw_headers binary, producer long, sequence long, value binary, "
        "batch string, node string, shard int, generation int"
    )
    if not paths:
        return spark.createDataFrame([], schema)
    kind = archive.holdings().format
    base = archive.where if "://" in archive.where else archive.root
    return spark.read.format(kind).schema(schema).option("basePath", base).load(paths)


def _statistics(footer: Any, name: str) -> list[Any]:
    """Those of a column, by row group, as far as they have any."""
    at = footer.schema.names.index(name)
    groups = (footer.row_group(group).column(at) for group in range(footer.num_row_groups))
    return [
        group.statistics
        for group in groups
        if group.statistics is not None and group.statistics.has_min_max
    ]


def _adds(seal: SealedStream, known: SealedStream | None) -> bool:
    if known is None:
        return True
    return known.digest == seal.digest and seal.chosen is not None and seal.chosen != known.chosen
