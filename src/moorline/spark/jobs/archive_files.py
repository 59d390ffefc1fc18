"""Room: spark. An archive of topics: which files there are, which of them count, and what nodes sealed.

    archive/_moorline/archive.json            what it holds: format and topics
    archive/_moorline/entries/NAME.json       the manifest: one entry for each writing
    archive/_moorline/receipts/NAME.HASH.json that there is such an entry (archive_entries.py)
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
import xxhash

from moorline.core.sets.digest import Digest
from moorline.core.stream import Stream
from moorline.errors import ConfigError, DriftFound, FormatTooNew
from moorline.limits import MIB
from moorline.spark.jobs.archive_entries import BATCH_FOLDER, EntryLocation
from moorline.spark.jobs.archive_location import OWN
from moorline.spark.jobs.manifest import MAX_US, ArchivedFile
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

MESSAGE_SCHEMA = (
    "offset long, timestamp timestamp, ttl_s int, flags int, topic string, key binary, "
    "raw_headers binary, producer long, sequence long, value binary"
)
STREAM_SCHEMA = "node string, shard int, generation int"
TEXT_FORMATS = ("json", "xml")
TEXT_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Formats that write times as text would leave out the microseconds."""

SEALS = f"{OWN}/seals"

HASH_READ_BYTES = 4 * MIB
"""Read at once of a file that is hashed: enough for full speed, nothing beside a row group."""

ARCHIVE_VERSION = 1
"""Of what lies in an archive beside the messages; docs/formats.md."""

Value = TypeVar("Value")


class Holdings(msgspec.Struct, frozen=True):
    """What an archive is of, and an id that stays with it wherever it is moved; fixed when it is made."""

    format: str
    topics: list[str]
    id: str = ""
    version: int = ARCHIVE_VERSION


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


class SealRecord(msgspec.Struct, frozen=True):
    """What nodes said at one time, and the XXH3-128 of that: what was edited since is not believed."""

    seals: list[SealedStream]
    check: str

    @staticmethod
    def of(seals: list[SealedStream]) -> "SealRecord":
        return SealRecord(seals, xxhash.xxh3_128_hexdigest(msgspec.json.encode(seals)))


class Checked(msgspec.Struct, frozen=True):
    """A small file of ours: what it says, and the XXH3-128 of that."""

    value: msgspec.Raw
    check: str

    @staticmethod
    def of(data: bytes) -> "Checked":
        return Checked(msgspec.Raw(data), xxhash.xxh3_128_hexdigest(data))


class Archive(EntryLocation):
    """A folder, or another place, with the messages of topics."""

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
        return self._known(found)

    def open(self, wanted: Holdings) -> Holdings:
        """Makes it, or refuses to go on with something else than it is of."""
        known = self.read_own("archive.json", Holdings)
        if known is None:
            if self.account() != ([], [], []):
                raise DriftFound(
                    f"{self.uri(OWN)}/archive.json is gone, and entries are there: bring it back from a "
                    "copy, or give another folder"
                )
            made = msgspec.structs.replace(wanted, id=uuid.uuid4().hex)
            self.write_own("archive.json", made)
            return made
        self._known(known)
        if (known.format, known.topics) != (wanted.format, wanted.topics):
            raise ConfigError(
                f"the archive at {self.where} is {known.format} of {','.join(known.topics)}, not "
                f"{wanted.format} of {','.join(wanted.topics)}: give another folder, or the same options"
            )
        return known

    def _known(self, found: Holdings) -> Holdings:
        if found.version > ARCHIVE_VERSION:
            raise FormatTooNew(
                f"the archive at {self.where} was written by a newer Moorline (format {found.version}, this "
                f"one knows up to {ARCHIVE_VERSION}): use that one. Nothing was changed"
            )
        return found

    # --- seals ------------------------------------------------------------------------------------

    def seals(self) -> dict[Stream, SealedStream]:
        """The newest word about each stream."""
        known: dict[Stream, SealedStream] = {}
        for path in self.listed(SEALS):
            for seal in self._sealed(path) or []:
                known[seal.stream] = seal
        return known

    def edited_seals(self) -> list[str]:
        """Paths of records that are not as they were written."""
        return [path for path in self.listed(SEALS) if self._sealed(path) is None]

    def set_aside(self, path: str) -> None:
        """Leaves a small file where nobody reads it."""
        self.files.move(self.full(path), self.full(f"{path}.aside"))

    def _sealed(self, path: str) -> list[SealedStream] | None:
        try:
            record = msgspec.json.decode(self.read(path) or b"", type=SealRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return record.seals if record == SealRecord.of(record.seals) else None

    def note_seals(self, told: Iterable[SealedStream]) -> None:
        """Keeps those that are new, so that they are known when retention has taken the streams."""
        known = self.seals()
        new = [seal for seal in told if _adds(seal, known.get(seal.stream))]
        if new:
            # Names in the order of time: what was said last is read last.
            name = f"{SEALS}/{time.time_ns():020}-{uuid.uuid4().hex[:8]}.json"
            self.write(name, SealRecord.of(new))

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
            stream.home,
            stream.shard_number,
            stream.generation,
            min((one.min for one in offsets), default=0),
            max((one.max for one in offsets), default=-1),
            min((first for first, _ in times), default=0),
            max((last for _, last in times), default=MAX_US),
            self.hash_of(path),
        )

    def hash_of(self, path: str) -> str:
        """XXH3-128 of all bytes of a file."""
        hashed = xxhash.xxh3_128()
        with self.files.open_input_stream(self.full(path)) as source:
            while piece := source.read(HASH_READ_BYTES):
                hashed.update(piece)
        return hashed.hexdigest()

    def read_own(self, name: str, kind: type[Value]) -> Value | None:
        path = f"{OWN}/{name}"
        found = self.read(path)
        if found is None:
            return None
        record = self.decoded(found, Checked, path)
        if record != Checked.of(bytes(record.value)):
            raise DriftFound(
                f"{self.uri(path)} is not as it was written: bring it back from a copy"
            )
        return self.decoded(bytes(record.value), kind, path)

    def write_own(self, name: str, value: object) -> None:
        self.write(f"{OWN}/{name}", Checked.of(msgspec.json.encode(value)))


def stream_of(path: str) -> Stream:
    """From the folders that a file is in."""
    parts = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    try:
        return Stream(unquote(parts["node"]), int(parts["shard"]), int(parts["generation"]))
    except (KeyError, ValueError) as error:
        raise DriftFound(f"{path} is not where a file of a stream would be") from error


def folder_of(batch: str, stream: Stream) -> str:
    """Where a file of that stream goes; escaped as Spark does, and reads it."""
    node = quote(stream.home, safe="-_.~")
    return f"{BATCH_FOLDER}{batch}/node={node}/shard={stream.shard_number}/generation={stream.generation}"


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
