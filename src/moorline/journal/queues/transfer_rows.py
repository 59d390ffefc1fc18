"""Room: journal/queues. Queues and messages as rows of a file, in JSON lines or in Parquet.

    {"row":"moorline-queues","version":1}
    {"row":"queue","queue":"kT…","owner":"","created_s":1767225600,"blocked":false,"suspended":false,
     "over_quota":false}
    {"row":"message","queue":"kT…","message":17,"time_ms":1767225601000,"is_quota_marker":false,
     "body":"YWhveQ=="}
    {"row":"end","queues":1,"messages":1,"digest":"00…"}

A queue's messages stand behind its own row, in order. In Parquet the first and the last row are the file's
metadata, and the two kinds between them are rows of one table with empty cells where they differ.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol

import msgspec
from msgspec import Meta

from moorline.errors import ConfigError, ImportRefused
from moorline.limits import KIB, MIB

VERSION = 1
LINE_BYTES_MAX = MIB
"""The longest line that is read: the largest body that a node may be set to take, in base64, and more."""

PARQUET_BATCH_ROWS = 4_096
UINT32_MAX = (1 << 32) - 1

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[int, Meta(ge=0, le=UINT32_MAX)]
QueueText = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{32}\Z")]


class Row(msgspec.Struct, frozen=True, gc=False, tag_field="row", forbid_unknown_fields=True):
    """One line."""


class HeadRow(Row, frozen=True, gc=False, tag="moorline-queues"):
    version: int


class QueueRow(Row, frozen=True, gc=False, tag="queue"):
    queue: QueueText
    owner: Annotated[str, Meta(pattern=r"\A([0-9a-f]{2}){0,1060}\Z")]
    created_s: Seconds
    blocked: bool
    suspended: bool
    over_quota: bool
    closed: bool = False
    """Not in exports of older programs."""


class MessageRow(Row, frozen=True, gc=False, tag="message"):
    queue: QueueText
    message: Annotated[int, Meta(ge=1, le=1 << 62)]
    time_ms: Annotated[int, Meta(ge=0, le=UINT32_MAX * 1_000)]
    is_quota_marker: bool
    body: Annotated[bytes, Meta(max_length=512 * KIB)]


class EndRow(Row, frozen=True, gc=False, tag="end"):
    queues: Count
    messages: Count
    digest: str


AnyRow = HeadRow | QueueRow | MessageRow | EndRow
RowPosition = str
"""Where a row stands, as an error names it: "line 7"."""

Rows = Iterator[tuple[RowPosition, AnyRow]]


class RowWriter(Protocol):
    def write(self, rows: list[AnyRow]) -> None: ...

    def close(self) -> None: ...


class JsonWriter:
    """Rows as JSON lines."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def write(self, rows: list[AnyRow]) -> None:
        self._stream.write(self._encoder.encode_lines(rows))

    def close(self) -> None:
        self._stream.flush()


def read_json(stream: BinaryIO) -> Rows:
    """The rows of JSON lines; a bad one is refused with its number."""
    decoder = msgspec.json.Decoder(AnyRow)
    number = 0
    while line := stream.readline(LINE_BYTES_MAX):
        number += 1
        if not line.endswith(b"\n"):
            why = "is cut off" if len(line) < LINE_BYTES_MAX else "is too long"
            raise ImportRefused(f"line {number} {why}: nothing was imported")
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ImportRefused(f"line {number}: {error}; nothing was imported") from error
        yield f"line {number}", row


# --- Parquet --------------------------------------------------------------------------------------


def _pyarrow() -> Any:
    """It is large, and only those who ask for Parquet wait for it."""
    import pyarrow
    import pyarrow.parquet

    return pyarrow


def _schema(pyarrow: Any) -> Any:
    return pyarrow.schema(
        [
            pyarrow.field("row", pyarrow.string(), nullable=False),
            pyarrow.field("queue", pyarrow.string(), nullable=False),
            ("owner", pyarrow.string()),
            ("created_s", pyarrow.int64()),
            ("blocked", pyarrow.bool_()),
            ("suspended", pyarrow.bool_()),
            ("over_quota", pyarrow.bool_()),
            ("closed", pyarrow.bool_()),
            ("message", pyarrow.int64()),
            ("time_ms", pyarrow.int64()),
            ("is_quota_marker", pyarrow.bool_()),
            ("body", pyarrow.binary()),
        ]
    )


class ParquetWriter:
    """Rows as one table; a batch is a row group."""

    def __init__(self, stream: BinaryIO) -> None:
        self._pyarrow = _pyarrow()
        self._schema = _schema(self._pyarrow)
        self._writer = self._pyarrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")

    def write(self, rows: list[AnyRow]) -> None:
        cells = []
        for row in rows:
            if isinstance(row, HeadRow | EndRow):
                text = msgspec.json.encode(row).decode()
                self._writer.add_key_value_metadata({_metadata_key(type(row)): text})
            else:
                kind = "queue" if isinstance(row, QueueRow) else "message"
                cells.append({"row": kind, **msgspec.structs.asdict(row)})
        if cells:
            self._writer.write_table(self._pyarrow.Table.from_pylist(cells, self._schema))

    def close(self) -> None:
        self._writer.close()


def read_parquet(path: Path) -> Rows:
    pyarrow = _pyarrow()
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            metadata = file.metadata.metadata or {}
            if not _is_export(file.schema_arrow, _schema(pyarrow)):
                raise ImportRefused(
                    f"{path} has other columns than an export: nothing was imported"
                )
            yield "the head", _from_metadata(path, metadata, HeadRow)
            for batch in file.iter_batches(PARQUET_BATCH_ROWS):
                for cells in batch.to_pylist():
                    number += 1
                    yield f"row {number}", _from_cells(cells, number)
            yield "the end", _from_metadata(path, metadata, EndRow)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        where = f" behind row {number}" if number else ""
        raise ImportRefused(
            f"{path} cannot be read as Parquet{where}: {error}; nothing was imported"
        ) from error


def _is_export(found: Any, schema: Any) -> bool:
    """Of this program, or of an older one, which had no closed queues."""
    return bool(
        found.equals(schema) or found.equals(schema.remove(schema.get_field_index("closed")))
    )


def _metadata_key(kind: type[Row]) -> str:
    return f"moorline.{kind.__struct_config__.tag}"


def _from_metadata(path: Path, metadata: dict[bytes, bytes], kind: type[AnyRow]) -> AnyRow:
    data = metadata.get(_metadata_key(kind).encode())
    if data is None:
        raise ImportRefused(f"{path} is not an export of queues: nothing was imported")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ImportRefused(f"the metadata of {path}: {error}; nothing was imported") from error


def _from_cells(cells: dict[str, Any], number: int) -> AnyRow:
    kind: type[QueueRow | MessageRow] = QueueRow if cells.pop("row") == "queue" else MessageRow
    fields = kind.__struct_fields__
    if any(value is not None for name, value in cells.items() if name not in fields):
        raise ImportRefused(f"row {number} fits no kind of row; nothing was imported")
    values = {name: cells[name] for name in fields if name in cells}
    try:
        # The tag is checked above; bytes are taken as they are.
        return msgspec.convert({"row": kind.__struct_config__.tag, **values}, kind)
    except msgspec.ValidationError as error:
        raise ImportRefused(f"row {number}: {error}; nothing was imported") from error


# --- by the file's name ---------------------------------------------------------------------------


def is_parquet(path: Path) -> bool:
    """By its ending; anything that is neither of the two kinds is refused."""
    if path.suffix == ".parquet":
        return True
    if path.suffix in (".jsonl", ".json"):
        return False
    raise ConfigError(
        f'"{path.name}" says not what it is: accepted are names that end in .jsonl, .json or '
        ".parquet, and - for JSON lines in a pipe"
    )


@contextlib.contextmanager
def written(path: Path) -> Iterator[RowWriter]:
    """A new file that gets its name when it is whole and on disk; a failure leaves nothing."""
    make: Callable[[BinaryIO], RowWriter] = ParquetWriter if is_parquet(path) else JsonWriter
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb") as stream:
            os.fchmod(stream.fileno(), 0o600)
            writer = make(stream)
            yield writer
            writer.close()
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path) -> Rows:
    """The rows of a file of either kind."""
    if is_parquet(path):
        yield from read_parquet(path)
    else:
        with path.open("rb") as stream:
            yield from read_json(stream)
