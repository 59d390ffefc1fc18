"""Room: spark. Columns that ids are read from: which there are, which types are taken, and what is no id.

An id is bytes. A text is its bytes in UTF-8, a whole number its digits. A row where there is nothing, or an
empty text, has no id: it is left out and counted. What cannot be an id is refused by its column and type,
before a job begins.
"""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from moorline.catalog.address import OPEN_ERRORS, unreachable
from moorline.errors import ConfigError
from moorline.limits import ID_SET_PIECE_ROWS

if TYPE_CHECKING:
    from moorline.spark.id_sets import Side

ACCEPTED = "binary, string, whole numbers"


def check_side(side: "Side", paths: list[Path]) -> None:
    """Refuses a side that a task could not read ids from; nothing but heads of files is read."""
    if side.catalog is not None:
        asyncio.run(_check_service(side.catalog.address(), side.column))
    for path in paths:
        match side.kind:
            case "csv":
                csv_column(side.column, path)
            case "sqlite":
                for _ in ids_of_client(str(path), rows_max=1):
                    pass
            case "parquet":
                parquet_column(side.column, path)


def ids_of(column: pa.Array) -> pa.Array:
    """The ids of a column, as bytes; rows without one are left out."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    found = column.cast(pa.binary()).drop_null()
    has_bytes = pc.greater(pc.binary_length(found), 0)
    return found if pc.all(has_bytes).as_py() in (True, None) else found.filter(has_bytes)


def csv_column(wanted: str, path: Path) -> str:
    """The name of the column, if the file has it."""
    import pyarrow.csv

    try:
        with pyarrow.csv.open_csv(path) as reader:
            names = reader.schema.names
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path} cannot be read as CSV: {error}") from error
    return _named(wanted, names, path)


def parquet_column(wanted: str, path: Path) -> str:
    """The name of the column, if the file has it and it can hold ids."""
    schema = opened_parquet(path).schema_arrow
    name = _named(wanted, schema.names, path)
    if schema.names.count(name) > 1:
        raise ConfigError(f"{path} has two columns {name!r}")
    kind = schema.field(name).type
    if not _is_taken(kind):
        raise ConfigError(f"{path}: column {name!r} is {kind}: ids are {ACCEPTED}")
    return name


def opened_parquet(path: Path) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path} cannot be read as Parquet: {error}") from error


def ids_of_client(path: str, rows_max: int = ID_SET_PIECE_ROWS) -> Iterator[pa.Array]:
    """The list that a client keeps of a service's queues, so many at a time."""
    database = None
    try:
        database = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
        cursor = database.execute("select queue from association")
        while rows := cursor.fetchmany(rows_max):
            yield pa.array([row[0] for row in rows], pa.binary())
    except (sqlite3.Error, pa.ArrowException) as error:
        raise ConfigError(f"{path} is not the list of a client: {error}") from error
    finally:
        if database is not None:
            database.close()


def _named(wanted: str, names: list[str], path: Path) -> str:
    """The first one where none is named."""
    if not names:
        raise ConfigError(f"{path} has no columns")
    if wanted and wanted not in names:
        raise ConfigError(f"{path} has no column {wanted!r}; there are {', '.join(names)}")
    return wanted or names[0]


def _is_taken(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    looks = (
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_string,
        types.is_large_string,
        types.is_integer,
    )
    return any(look(kind) for look in looks)


async def _check_service(catalog: str, name: str) -> None:
    import asyncpg

    try:
        connection = await asyncpg.connect(catalog)
    except OPEN_ERRORS as error:
        raise unreachable(catalog, error) from None
    try:
        known = await connection.fetchval(
            "select count(*) from moorline.service where name = $1", name
        )
    except asyncpg.UndefinedTableError:
        raise ConfigError("this database holds no catalog of Moorline") from None
    finally:
        await connection.close()
    if not known:
        raise ConfigError(f"there is no service {name!r} in the catalog")
