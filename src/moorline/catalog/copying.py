"""Room: catalog. All that the tables of a catalog hold, as texts, at one moment; and back into an empty one.

    async with CatalogCut.begun(dsn) as cut:      the moment
        async for table in cut.tables(): await cut.write(table, file)

    facts = await load(connection, found, folder)

Text of `copy`, a row a line: the same of an embedded Postgres and of a given one, of this version of Postgres
and of another. Which migrations made the tables is told beside them: they are made anew by the same ones. The
digest of a table is that of its lines, in any order. Why texts and no `pg_basebackup`: decision 0295.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import IO, NamedTuple, Self

import asyncpg
import msgspec
import xxhash

from moorline.catalog.address import OPEN_ERRORS, unreachable
from moorline.catalog.migration import MIGRATIONS, migrate
from moorline.catalog.statements import statement
from moorline.core.sets.digest import Digest
from moorline.errors import BackupDamaged, BackupRefused, CatalogTooNew
from moorline.limits import (
    BACKUP_PART_BYTES,
    CATALOG_CONNECT_MS_MAX,
    CATALOG_CUT_MS_MAX,
    EPOCHS_PER_S_MAX,
)

COLUMNS = statement("copy_columns")
DEPENDENCIES = statement("copy_dependencies")
SEQUENCES = statement("copy_sequences")
OTHERS = statement("copy_others")
SEQUENCE_SET = statement("copy_sequence_set")
FORGET_HOLDERS = statement("copy_forget_holders")
END_MOVES = statement("copy_end_moves")
HOME_RESTORED = statement("home_restored")

MIGRATION, MOVES = "migration", "home_move"


class TableFacts(msgspec.Struct, frozen=True):
    """One table, as a backup has it."""

    name: str
    columns: list[str]
    rows: int = 0
    digest: str = ""
    """Of its lines, in any order."""


class CatalogFacts(msgspec.Struct, frozen=True):
    version: int
    """Of the newest migration that was applied."""
    tables: list[TableFacts]
    sequences: dict[str, int]
    """How far each had come."""
    others: list[str] = []
    """Tables in the embedded Postgres that are not ours: in a file that `pg_restore` reads."""


class LineDigest:
    """Counts the lines of a text that comes in parts, and hashes each."""

    def __init__(self) -> None:
        self._rest = b""
        self._count = 0
        self._mixed = 0

    def update(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        self._count += len(lines)
        for line in lines:
            self._mixed ^= xxhash.xxh3_128_intdigest(line)

    def digest(self) -> Digest:
        assert not self._rest, "every line of a copy ends"
        return Digest(self._count, self._mixed.to_bytes(16, "big"))


class CatalogCut:
    """A connection that sees the catalog as it was at one moment. Made by `begun`."""

    def __init__(self, connection: asyncpg.Connection, dsn: str) -> None:
        self._connection, self.dsn = connection, dsn
        self.snapshot = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, dsn: str) -> AsyncIterator[Self]:
        try:
            connection = await asyncpg.connect(dsn, timeout=CATALOG_CONNECT_MS_MAX / 1_000)
        except OPEN_ERRORS as error:
            raise unreachable(dsn, error) from None
        try:
            yield cls(connection, dsn)
        finally:
            # A copy that is given up is not waited for.
            connection.terminate()

    async def begin(self) -> None:
        """From here on it sees this moment."""
        async with asyncio.timeout(CATALOG_CUT_MS_MAX / 1_000):
            await self._connection.execute("begin isolation level repeatable read read only")
            self.snapshot = await self._connection.fetchval("select pg_export_snapshot()")

    async def facts(self) -> CatalogFacts:
        # What takes long must not be ended by what the server has set for others.
        await self._connection.execute("set local statement_timeout = 0")
        version = await self._connection.fetchval("select max(number) from moorline.migration")
        found: dict[str, list[str]] = {}
        for row in await self._connection.fetch(COLUMNS):
            found.setdefault(row["table_name"], []).append(row["column_name"])
        sequences = {
            row["name"]: row["last_value"] for row in await self._connection.fetch(SEQUENCES)
        }
        others = [row["name"] for row in await self._connection.fetch(OTHERS)]
        tables = [TableFacts(name, columns) for name, columns in found.items()]
        return CatalogFacts(version, tables, sequences, others)

    async def write(self, table: TableFacts, file: IO[bytes]) -> None:
        """All rows of a table; some at a time, so that others have their turn."""

        async def written(data: bytes) -> None:
            file.write(data)
            await asyncio.sleep(0)

        await self._connection.copy_from_table(
            table.name, schema_name="moorline", columns=table.columns, output=written
        )


def digest_of(file: Path) -> Digest:
    found = LineDigest()
    for part in _parts(file):
        found.update(part)
    return found.digest()


def _parts(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while part := source.read(BACKUP_PART_BYTES):
            yield part


async def check_empty(dsn: str) -> None:
    """Refuses a Postgres that has a catalog."""
    async with _connected(dsn) as connection:
        await _check_empty(connection)


class HomeThere(NamedTuple):
    """A home, as a catalog that lives knows it."""

    moves: int
    node: str
    is_held: bool


async def home_there(dsn: str, number: bytes) -> HomeThere | None:
    """None if that catalog does not know it."""
    async with _connected(dsn) as connection:
        row = await connection.fetchrow(HOME_RESTORED, number)
    return None if row is None else HomeThere(**row)


async def load(dsn: str, facts: CatalogFacts, folder: Path, since_s: int) -> None:
    """Into a Postgres without a catalog, in one transaction: all of it is there, proven, or nothing.

    What numbers and epochs were given since that moment, `since_s` ago, is not known: they go on far behind.
    """
    known = [one for one in MIGRATIONS if one.number <= facts.version]
    if not known or known[-1].number != facts.version:
        raise CatalogTooNew(
            f"the catalog of the backup is at version {facts.version}, which this Moorline does not know: "
            "restore it with the one that made it, or a newer one"
        )
    async with _connected(dsn) as connection, connection.transaction():
        await _check_empty(connection)
        await migrate(connection, known)
        order = await _order(connection)
        by_name = {table.name: table for table in facts.tables}
        if set(order) != set(by_name):
            raise BackupDamaged("the tables of the backup are not those of its version")
        names = ", ".join(f"moorline.{name}" for name in order if name != MIGRATION)
        # Migrations have put rows of a beginning there.
        await connection.execute(f"truncate {names}")
        for name in order:
            await _load_table(connection, by_name[name], folder / f"{name}.copy")
        for row in await connection.fetch(SEQUENCES):
            value = facts.sequences.get(row["name"], 0)
            # Those of 32 bits number rows, and nobody keeps such a number beside the catalog.
            ahead = (1 + since_s) * EPOCHS_PER_S_MAX if row["max_value"] > 2**32 else 1
            await connection.execute(SEQUENCE_SET, row["name"], value + ahead)
        await connection.execute(FORGET_HOLDERS)
        if MOVES in by_name:
            # A catalog of before there were any is made as it was, and migrated by the first start.
            await connection.execute(END_MOVES)


async def _load_table(connection: asyncpg.Connection, table: TableFacts, file: Path) -> None:
    if table.name == MIGRATION:
        return  # made by the migrations themselves
    loaded = connection.copy_to_table(
        table.name, schema_name="moorline", columns=table.columns, source=file
    )
    await loaded
    found = LineDigest()

    async def seen(data: bytes) -> None:
        found.update(data)

    await connection.copy_from_table(
        table.name, schema_name="moorline", columns=table.columns, output=seen
    )
    if str(found.digest()) != table.digest:
        raise BackupDamaged(
            f"the table {table.name} of the catalog did not become what the backup has: nothing was loaded"
        )


async def _order(connection: asyncpg.Connection) -> list[str]:
    """Tables behind those that their rows speak of."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for row in await connection.fetch(COLUMNS):
        sorter.add(row["table_name"])
    for row in await connection.fetch(DEPENDENCIES):
        if row["one"] != row["other"]:
            sorter.add(row["one"], row["other"])
    return list(sorter.static_order())


async def _check_empty(connection: asyncpg.Connection) -> None:
    if await connection.fetchval("select to_regnamespace('moorline') is not null"):
        raise BackupRefused(
            "this Postgres has a catalog already, and nothing is put over it: give an empty database, or "
            "--keep-catalog if it is the catalog of this node's cluster and lives"
        )


@contextlib.asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    try:
        connection = await asyncpg.connect(dsn, timeout=CATALOG_CONNECT_MS_MAX / 1_000)
    except OPEN_ERRORS as error:
        raise unreachable(dsn, error) from None
    try:
        yield connection
    finally:
        connection.terminate()
