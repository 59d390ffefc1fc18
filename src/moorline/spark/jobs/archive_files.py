"""Room: spark. An archive of topics: which files there are, which of them count, and what nodes sealed.

    archive/_moorline/archive.json            what it holds: format and topics
    archive/_moorline/entries/NAME.json       the manifest: one entry for each writing
    archive/_moorline/seals/NAME.json         counts and digests of sealed streams, as their nodes told them
    archive/_moorline/replays/TOKEN.….json    plans of replays, and how far they are
    archive/_moorline/lock                    held by the one run of `archive` that there may be
    archive/_moorline/checkpoint/             Spark's, unless it is put elsewhere
    archive/batch=NAME/node=…/shard=…/generation=…/part-….parquet

An entry names the files that a writing brought, and those that they take the place of. A file counts if an
entry names it and no entry has replaced it. So an entry is the moment at which a batch, a compaction or a
repair happens, all of it at once; and jobs that write at the same time do not write to the same place.
Entries are small files that are written whole and never changed, through pyarrow.fs: a folder, S3, HDFS.

Removing comes behind: first the files that are replaced, then entries that say nothing any more. A crash in
between leaves files that nobody counts, and the next `clean` goes on.
"""

import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from moorline.core.digest import Digest
from moorline.core.stream import Stream
from moorline.errors import ConfigError, DriftFound
from moorline.limits import ARCHIVE_ORPHAN_S
from moorline.spark.jobs.archive_place import OWN, Place
from moorline.spark.jobs.manifest import idle_entries, live_files
from moorline.spark.jobs.ttl_bits import SQL_TO_SECONDS
from moorline.wire.topic import StreamFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
"""Behind every message: where nobody says when the last one was, or is to be."""

MESSAGE_SCHEMA = (
    "offset long, timestamp timestamp, ttl_s int, flags int, topic string, key binary, "
    "raw_headers binary, producer long, sequence long, value binary"
)
STREAM_SCHEMA = "node string, shard int, generation int"
TEXT_FORMATS = ("json", "xml")
TEXT_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Formats that write times as text would leave out the microseconds."""

Value = TypeVar("Value")

BATCH_FOLDER = "batch="
"""How the folder of each writing begins."""


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


class LostRange(msgspec.Struct, frozen=True):
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
    lost: list[LostRange] = []


class Holdings(msgspec.Struct, frozen=True):
    """What an archive is of, and an id that stays with it wherever it is moved; fixed when it is made."""

    format: str
    topics: list[str]
    id: str = ""
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


class Archive(Place):
    """A place with a manifest."""

    kind = "an archive"

    # --- what it is -------------------------------------------------------------------------------

    @property
    def checkpoint(self) -> str:
        return f"{self.where}/{OWN}/checkpoint"

    def holdings(self) -> Holdings:
        found = self.read_own("archive.json", Holdings)
        if found is None:
            raise ConfigError(
                f"there is no archive at {self.where}: `moor pipeline archive` makes one"
            )
        return found

    def open(self, wanted: Holdings) -> Holdings:
        """Makes it, or refuses to go on with something else than it is of."""
        known = self.read_own("archive.json", Holdings)
        if known is None:
            made = msgspec.structs.replace(wanted, id=uuid.uuid4().hex)
            self.write_own("archive.json", made)
            return made
        if (known.format, known.topics) != (wanted.format, wanted.topics):
            raise ConfigError(
                f"the archive at {self.where} is {known.format} of {','.join(known.topics)}, not "
                f"{wanted.format} of {','.join(wanted.topics)}: give another folder, or the same options"
            )
        return known

    # --- the manifest -----------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        entries = []
        for path in self.listed(f"{OWN}/entries"):
            found = self.read(path)
            # A clean of another job may have been faster.
            if found is not None:
                entries.append(self._decoded(found, Entry, path))
        return entries

    def has_entry(self, name: str) -> bool:
        return self.read(f"{OWN}/entries/{name}.json") is not None

    def add(self, entry: Entry) -> None:
        """From now on its files count, and those that it replaces do not."""
        self.write(f"{OWN}/entries/{entry.name}.json", entry)

    def live(self) -> list[ArchivedFile]:
        """The files that count, by path."""
        return live_files(self.entries())

    def present(self) -> list[ArchivedFile]:
        """The files that count, all of them there: Spark would name a missing one in words of its own."""
        live = self.live()
        missing = self._missing(live)
        if missing:
            # A compaction may have replaced them while we looked.
            live = self.live()
            missing = self._missing(live)
        if missing:
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DriftFound(
                f"{self.uri(missing[0])} is gone{more}: `moor pipeline verify` says what can be repaired"
            )
        return live

    def _missing(self, files: list[ArchivedFile]) -> list[str]:
        from pyarrow import fs

        infos = self.files.get_file_info([self.full(file.path) for file in files])
        return [
            file.path
            for file, info in zip(files, infos, strict=True)
            if info.type == fs.FileType.NotFound
        ]

    def clean(self) -> int:
        """Removes what is replaced, and what a crash left; how many files."""
        entries = self.entries()
        removed = 0
        for path in sorted({path for entry in entries for path in entry.replaced}):
            removed += self.remove(path)
        for name in idle_entries(entries):
            self.remove(f"{OWN}/entries/{name}.json")
        return removed + self._clean_orphans(entries)

    def _clean_orphans(self, entries: list[Entry]) -> int:
        """In the folders that writings make: what a person put elsewhere is not ours to remove."""
        known = {file.path for entry in entries for file in entry.files}
        oldest_ns = time.time_ns() - ARCHIVE_ORPHAN_S * 10**9
        removed = 0
        for path, changed_ns in self.data_files():
            is_ours = path.startswith(BATCH_FOLDER) and path not in known
            # An entry of Spark's own writing names the folder of its files.
            if is_ours and changed_ns < oldest_ns and path.rpartition("/")[0] not in known:
                removed += self.remove(path)
        return removed

    def strays(self, entries: list[Entry]) -> list[str]:
        """Parquet files that nobody counts and nobody is writing: whoever reads the folder would see them.

        A writing that has no entry yet, or never will, has files in a folder of its own for at most a day.
        """
        known = {file.path for entry in entries for file in entry.files}
        known |= {path for entry in entries for path in entry.replaced}
        over = {f"{BATCH_FOLDER}{entry.name}" for entry in entries}
        oldest_ns = time.time_ns() - ARCHIVE_ORPHAN_S * 10**9
        return [
            path
            for path, changed_ns in self.data_files()
            if path.endswith(".parquet")
            and path not in known
            and (
                not path.startswith(BATCH_FOLDER)
                or path.partition("/")[0] in over
                or changed_ns < oldest_ns
            )
        ]

    # --- seals ------------------------------------------------------------------------------------

    def seals(self) -> dict[Stream, SealedStream]:
        """The newest word about each stream."""
        known: dict[Stream, SealedStream] = {}
        for path in self.listed(f"{OWN}/seals"):
            found = self.read(path)
            for seal in self._decoded(found, list[SealedStream], path) if found else []:
                known[seal.stream] = seal
        return known

    def note_seals(self, told: Iterable[SealedStream]) -> None:
        """Keeps those that are new, so that they are known when retention has taken the streams."""
        known = self.seals()
        new = [seal for seal in told if _adds(seal, known.get(seal.stream))]
        if new:
            # Names in the order of time: what was said last is read last.
            self.write(f"{OWN}/seals/{time.time_ns():020}-{uuid.uuid4().hex[:8]}.json", new)

    # --- data -------------------------------------------------------------------------------------

    def described(self, path: str) -> ArchivedFile:
        """A file that was just written, as its footer tells it."""
        import pyarrow.parquet as pq

        size = self.files.get_file_info(self.full(path)).size
        with self.files.open_input_file(self.full(path)) as source:
            footer = pq.ParquetFile(source).metadata
        offsets = [one for one in statistics(footer, "offset") if one is not None]
        times = [
            (int(one.min.timestamp() * 1_000_000) - 1, int(one.max.timestamp() * 1_000_000) + 1)
            for one in statistics(footer, "timestamp")
            if one is not None
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

    def read_own(self, name: str, kind: type[Value]) -> Value | None:
        found = self.read(f"{OWN}/{name}")
        return None if found is None else self._decoded(found, kind, f"{OWN}/{name}")

    def write_own(self, name: str, value: object) -> None:
        self.write(f"{OWN}/{name}", value)

    def _decoded(self, data: bytes, kind: type[Value], path: str) -> Value:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise DriftFound(
                f"{self.uri(path)} is not as it was written ({error}): bring it back from a copy"
            ) from error


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
    return f"{BATCH_FOLDER}{batch}/node={node}/shard={stream.shard}/generation={stream.generation}"


def archived(spark: "SparkSession", where: str) -> "DataFrame":
    """An archive as a table: the files that count, with their streams as columns."""
    archive = Archive(where)
    return frame_of(spark, archive, archive.present())


def frame_of(spark: "SparkSession", archive: Archive, files: Iterable[ArchivedFile]) -> "DataFrame":
    from pyspark.sql import functions

    paths = [archive.uri(file.path) for file in files]
    schema = f"{MESSAGE_SCHEMA}, batch string, {STREAM_SCHEMA}"
    if paths:
        kind = archive.holdings().format
        reader = spark.read.format(kind).schema(schema).options(**text_options(kind))
        found = reader.option("basePath", archive.of_spark).load(paths)
    else:
        found = spark.createDataFrame([], schema)
    return found.withColumns({"ttl_s": functions.expr(SQL_TO_SECONDS)})


def text_options(kind: str) -> dict[str, str]:
    """What a format needs to bring back a message as it was."""
    return TEXT_OPTIONS if kind in TEXT_FORMATS else {}


def statistics(footer: Any, name: str) -> list[Any]:
    """Those of a column for every row group; None where there are none."""
    at = footer.schema.names.index(name)
    found = (
        footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)
    )
    return [one if one is not None and one.has_min_max else None for one in found]


def _adds(seal: SealedStream, known: SealedStream | None) -> bool:
    if known is None:
        return True
    return known.digest == seal.digest and seal.chosen is not None and seal.chosen != known.chosen
