"""Room: spark. Sets of ids as Spark reads them: by the file in the workers, never through the JVM.

A side of a comparison is Parquet files, CSV files, the SQLite list of a client, or the associations of a
service in the catalog. A task reads a piece of it with pyarrow (or asyncpg), hashes all of it at once, and
yields its digest, or one for each of 65,536 buckets (the first 16 bits of the hash), or the ids of some
buckets. What goes through Spark is small, however large the sets are.
"""

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moorline.catalog.address import OPEN_ERRORS, unreachable
from moorline.catalog.location import CatalogLocation, location_of
from moorline.errors import ConfigError
from moorline.limits import ID_SET_BUCKET_BITS, ID_SET_PIECE_ROWS
from moorline.spark.id_columns import (
    check_side,
    csv_column,
    ids_of,
    ids_of_client,
    opened_parquet,
    parquet_column,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("parquet", "csv", "sqlite", "catalog", "catalog-file")

BUCKETS = 1 << ID_SET_BUCKET_BITS

WITHOUT = BUCKETS
"""In the place of a bucket: how many rows have no id."""

CATALOG_PIECE = 2
"""First bytes of the hash that are asked for at once: less than a million of 10^8 associations."""

SUMS = ("count", "high", "low", "upper", "lower")
"""Of a bucket: how many ids, the XOR of their hashes in two halves, and the sums of the first half's own
two. An id that is there twice vanishes from an XOR, so two sides with repeats may have the same one; sums
tell them apart. Two of 32 bits, since Spark takes no sum that overflows."""

Words = npt.NDArray[np.uint64]


class Side(NamedTuple):
    """A set of ids: where it is, and in which column."""

    kind: str
    where: str
    column: str

    @staticmethod
    def of(text: str) -> "Side":
        """`parquet:PATH[#COLUMN]`, `csv:PATH[#COLUMN]`, `sqlite:FILE`, `catalog:DSN#SERVICE`,
        `catalog-file:FILE#SERVICE`, or a path."""
        kind, colon, where = text.partition(":")
        if not colon or kind not in KINDS:
            where = text
            ending = text.partition("#")[0].rpartition(".")[2]
            kind = ending if ending in ("csv", "sqlite") else "parquet"
        # A column has no #, and a path or an address may.
        where, _, column = where.rpartition("#") if "#" in where else (where, "", "")
        if not where or (kind.startswith("catalog") and not column):
            raise ConfigError(
                f"{_shown(text)} is no set of ids; accepted: parquet:PATH#COLUMN, csv:PATH#COLUMN, "
                "sqlite:FILE of a client, catalog:postgresql://…#SERVICE, catalog-file:FILE#SERVICE"
            )
        if kind.startswith("catalog"):
            is_file = kind == "catalog-file"
            return Side.of_catalog(
                location_of(
                    "" if is_file else where,
                    where if is_file else "",
                    dsn_name="catalog:…",
                    file_name="catalog-file:FILE#SERVICE",
                    shown_by="every list of processes and Spark's plans show",
                ),
                column,
            )
        return Side(kind, where, column)

    @staticmethod
    def of_catalog(place: CatalogLocation, service: str) -> "Side":
        return Side("catalog-file" if place.file else "catalog", place.file or place.dsn, service)

    @property
    def catalog(self) -> CatalogLocation | None:
        """Of the kinds that are read from one."""
        if self.kind == "catalog-file":
            return CatalogLocation(file=self.where)
        return CatalogLocation(self.where) if self.kind == "catalog" else None

    @property
    def label(self) -> str:
        """As texts may show it."""
        where = str(self.catalog or self.where)
        return f"{self.kind}:{where}" + (f"#{self.column}" if self.column else "")


class Piece(NamedTuple):
    """What one task reads."""

    kind: str
    path: str
    first: int
    upto: int


class IdSetSource(DataSource):
    """`moorline_ids`: internal to the jobs."""

    @classmethod
    def name(cls) -> str:
        return "moorline_ids"

    def schema(self) -> str:
        if self.options.get("yield") == "ids":
            return "id binary"
        return ", ".join(["bucket int", *(f"{name} long" for name in SUMS)])

    def reader(self, schema: StructType) -> "IdSetReader":  # noqa: ARG002
        return IdSetReader(dict(self.options))


class _Partition(InputPartition):
    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__(None)
        self.pieces = pieces


class IdSetReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._side = Side(*json.loads(options["side"]))
        self._pieces = [Piece(*piece) for piece in json.loads(options["pieces"])]
        self._tasks = int(options["tasks"])
        wanted = options.get("buckets")
        self._wanted = base64.b64decode(wanted) if wanted else b""
        self._yields = options.get("yield", "buckets")
        self._without = 0
        """Rows of this task that have no id."""

    def partitions(self) -> list[InputPartition]:
        # Row groups in turn: files are often written in the order of something.
        return [
            _Partition(pieces)
            for start in range(self._tasks)
            if (pieces := self._pieces[start :: self._tasks])
        ] or [_Partition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Partition)
        if self._yields == "ids":
            yield from self._chosen(partition.pieces)
        else:
            is_total = self._yields == "total"
            yield self._total(partition.pieces) if is_total else self._digests(partition.pieces)
            if self._without:
                yield _summed(
                    np.array([WITHOUT], np.int32),
                    [np.array([one]) for one in (self._without, 0, 0, 0, 0)],
                )

    def _total(self, pieces: list[Piece]) -> pa.RecordBatch:
        """The digest of all, as if it were one bucket: the hashes never leave polars."""
        count = total = 0
        if self._side.catalog is not None:
            for _, hashes in self._read(pieces):
                high, low = np.bitwise_xor.reduce(hashes, axis=0).tolist()
                count, total = count + len(hashes), total ^ (high << 64 | low)
        else:
            for ids in self._ids(pieces):
                count, total = count + len(ids), total ^ xored(ids)
        high, low = np.frombuffer(total.to_bytes(16, "big"), ">i8").tolist()
        return _summed(np.zeros(1, np.int32), [np.array([one]) for one in (count, high, low, 0, 0)])

    def _digests(self, pieces: list[Piece]) -> pa.RecordBatch:
        counts, high, low, upper, lower = (np.zeros(BUCKETS, np.uint64) for _ in SUMS)
        for _, hashes in self._read(pieces):
            first, second = hashes[:, 0], hashes[:, 1]
            buckets = (first >> np.uint64(64 - ID_SET_BUCKET_BITS)).astype(np.int64)
            counts += np.bincount(buckets, minlength=BUCKETS).astype(np.uint64)
            np.bitwise_xor.at(high, buckets, first)
            np.bitwise_xor.at(low, buckets, second)
            np.add.at(upper, buckets, first >> np.uint64(32))
            np.add.at(lower, buckets, first & np.uint64(0xFFFF_FFFF))
        used = np.flatnonzero(counts)
        return _summed(
            used.astype(np.int32), [one[used] for one in (counts, high, low, upper, lower)]
        )

    def _chosen(self, pieces: list[Piece]) -> Iterator[pa.RecordBatch]:
        wanted = np.unpackbits(np.frombuffer(self._wanted, np.uint8)).astype(np.bool_)
        for ids, hashes in self._read(pieces):
            mask = wanted[(hashes[:, 0] >> np.uint64(64 - ID_SET_BUCKET_BITS)).astype(np.int64)]
            if mask.any():
                yield pa.record_batch([ids.filter(pa.array(mask))], names=["id"])

    def _read(self, pieces: list[Piece]) -> Iterator[tuple[pa.Array, Words]]:
        if self._side.catalog is not None:
            for piece in pieces:
                yield from asyncio.run(_from_catalog(self._side, piece))
        else:
            for ids in self._ids(pieces):
                yield ids, hashed(ids)

    def _ids(self, pieces: list[Piece]) -> Iterator[pa.Array]:
        for piece in pieces:
            for column in _from_file(piece, self._side.column):
                ids = ids_of(column)
                self._without += len(column) - len(ids)
                if len(ids):
                    yield ids


def _summed(
    buckets: npt.NDArray[np.int32], sums: Sequence[npt.NDArray[np.int64] | Words]
) -> pa.RecordBatch:
    columns = [pa.array(buckets), *(pa.array(one.view(np.int64)) for one in sums)]
    return pa.record_batch(columns, names=["bucket", *SUMS])


def xored(ids: pa.Array) -> int:
    """The XOR of the XXH3-128 of all ids."""
    import polars
    import polars_hash

    frame = polars.DataFrame({"id": polars.from_arrow(ids)})
    found = frame.select(polars_hash.col("id").nchash.xxh3_128().bitwise_xor())
    return int(found.item() or 0)


def hashed(ids: pa.Array) -> Words:
    """XXH3-128 of each id: (high, low), equal to core.sets.hashing to the bit."""
    import polars
    import polars_hash

    column = polars.from_arrow(ids)
    assert isinstance(column, polars.Series)
    frame = polars.DataFrame({"id": column.cast(polars.Binary)})
    packed = frame.select(
        polars_hash.col("id").nchash.xxh3_128(return_binary=True, byte_order="big").alias("hash")
    )["hash"]
    binary = packed.to_arrow().cast(pa.binary())
    start = np.frombuffer(binary.buffers()[1], np.int32)[binary.offset]
    octets = np.frombuffer(binary.buffers()[2], np.uint8)[start : start + 16 * len(binary)]
    return octets.view(">u8").astype(np.uint64).reshape(-1, 2)


def _from_file(piece: Piece, column: str) -> Iterator[pa.Array]:
    path = Path(piece.path)
    if piece.kind == "csv":
        yield from _from_csv(path, column)
    elif piece.kind == "sqlite":
        yield from ids_of_client(piece.path)
    else:
        name = parquet_column(column, path)
        groups = list(range(piece.first, piece.upto))
        for batch in opened_parquet(path).iter_batches(
            ID_SET_PIECE_ROWS, row_groups=groups, columns=[name]
        ):
            yield batch.column(0)


def _from_csv(path: Path, column: str) -> Iterator[pa.Array]:
    import pyarrow.csv

    # Ids are texts: left to itself it would take digits for numbers, and lose leading zeros.
    name = csv_column(column, path)
    options = pyarrow.csv.ConvertOptions(include_columns=[name], column_types={name: pa.binary()})
    try:
        with pyarrow.csv.open_csv(path, convert_options=options) as reader:
            for batch in reader:
                yield batch.column(0)
    except pa.ArrowException as error:
        raise ConfigError(f"{path} cannot be read as CSV: {error}") from error


def _shown(text: str) -> str:
    """What was given, unless there may be a password in it."""
    return repr(text) if "@" not in text else "this"


async def _from_catalog(side: Side, piece: Piece) -> list[tuple[pa.Array, Words]]:
    """The associations of a service whose stored hashes begin with one of these bytes; hashed anew."""
    import asyncpg

    assert side.catalog is not None
    dsn = side.catalog.address()
    try:
        connection = await asyncpg.connect(dsn)
    except OPEN_ERRORS as error:
        raise unreachable(dsn, error) from None
    try:
        rows = await connection.fetch(
            "select a.queue from moorline.association a "
            "join moorline.service s on s.number = a.service "
            "where s.name = $1 and ((a.hash_high >> 56) & 255) between $2 and $3",
            side.column,
            piece.first,
            piece.upto - 1,
        )
    finally:
        await connection.close()
    ids = pa.array([row["queue"] for row in rows], pa.binary())
    # A stored hash would say equal where the id beside it was changed.
    return [(ids, hashed(ids))] if rows else []


# --- what the jobs do with it ---------------------------------------------------------------------


def pieces_of(side: Side) -> list[Piece]:
    """What the tasks share out among themselves: row groups, files, or parts of the catalog."""
    if side.catalog is not None:
        return [
            Piece("catalog", "", first, first + CATALOG_PIECE)
            for first in range(0, 256, CATALOG_PIECE)
        ]
    paths = _paths(side)
    if side.kind in ("csv", "sqlite"):
        return [Piece(side.kind, str(path), 0, 1) for path in paths]
    return [
        Piece("parquet", str(path), group, group + 1)
        for path in paths
        for group in range(opened_parquet(path).num_row_groups)
    ]


def check_sides(*sides: Side) -> None:
    """Refuses what no task could read ids from, before there is a Spark."""
    for side in sides:
        check_side(side, _paths(side) if side.catalog is None else [])


def _paths(side: Side) -> list[Path]:
    # Workers may be in other folders.
    root = Path(side.where).absolute()
    if root.is_dir():
        paths = sorted(
            path
            for path in root.rglob(f"*.{side.kind}")
            if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
        )
    else:
        paths = sorted(Path(root.anchor or ".").glob(str(root.relative_to(root.anchor))))
    if not paths:
        raise ConfigError(f"{side.where}: no {side.kind} files there")
    return paths


def read_side(
    spark: "SparkSession",
    side: Side,
    *,
    tasks: int,
    buckets: bytes = b"",
    yields: Literal["total", "buckets", "ids"] = "buckets",
) -> "DataFrame":
    """The digest of a side, those of its buckets, or the ids of some buckets."""
    spark.dataSource.register(IdSetSource)
    reader = (
        spark.read.format("moorline_ids")
        .option("side", json.dumps(side))
        .option("pieces", json.dumps(pieces_of(side)))
        .option("tasks", str(tasks))
    )
    if buckets:
        reader = reader.option("buckets", base64.b64encode(buckets).decode())
    return reader.option("yield", yields).load()
