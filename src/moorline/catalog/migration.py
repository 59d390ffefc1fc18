"""Room: catalog. Brings the catalog's tables to what this Moorline expects.

A migration is a file `migrations/NNNN_name.sql`. It is applied in one transaction with its row in
the table `migration`, under an advisory lock, so that it is there whole or not at all, and once,
however many nodes start together. A file that was applied somewhere never changes again: its
checksum is compared at every start.
"""

import hashlib
from collections.abc import Sequence
from importlib import resources

import asyncpg
import msgspec

from moorline.catalog.statements import statement
from moorline.errors import CatalogTooNew, StartError
from moorline.limits import CATALOG_MIGRATE_MS_MAX

LOCK_KEY = int.from_bytes(b"moorline")  # any number that nobody else on this Postgres takes

MIGRATION_LOCK = statement("migration_lock")
MIGRATION_TABLE = statement("migration_table")
MIGRATION_APPLIED = statement("migration_applied")
MIGRATION_ADD = statement("migration_add")


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load_migrations() -> tuple[Migration, ...]:
    """All files, by number; each number is used once."""
    found: list[Migration] = []
    for file in (resources.files("moorline.catalog") / "migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in found]
    assert len(set(numbers)) == len(numbers), f"a number is used twice: {numbers}"
    return tuple(found)


MIGRATIONS = load_migrations()


async def migrate(
    connection: asyncpg.Connection, migrations: Sequence[Migration] = MIGRATIONS
) -> list[int]:
    """Applies what is missing, in order; returns the numbers that this call applied."""
    done: list[int] = []
    # Looked at without the lock first: nearly every start finds nothing to do, and then needs no
    # right to write.
    missing = _missing(await _applied(connection), migrations)
    while missing:
        # Read committed, whatever the server's default is: after the lock we must see what the
        # node before us did.
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(
                MIGRATION_LOCK, LOCK_KEY, timeout=CATALOG_MIGRATE_MS_MAX / 1000
            )
            # Another node may have been faster while we waited for the lock.
            missing = _missing(await _applied(connection), migrations)
            if missing:
                await _apply(connection, missing[0])
                done.append(missing.pop(0).number)
    return done


async def outstanding(
    connection: asyncpg.Connection, migrations: Sequence[Migration] = MIGRATIONS
) -> list[int]:
    """Those that the next start would apply; changes nothing, and raises as a start would."""
    return [one.number for one in _missing(await _applied(connection), migrations)]


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    await connection.execute(migration.sql, timeout=CATALOG_MIGRATE_MS_MAX / 1000)
    await connection.execute(MIGRATION_ADD, migration.number, migration.name, migration.checksum)


async def _applied(connection: asyncpg.Connection) -> dict[int, tuple[str, str]]:
    """Name and checksum of what is applied, by number; nothing on an empty database."""
    if not await connection.fetchval(MIGRATION_TABLE):
        return {}
    rows = await connection.fetch(MIGRATION_APPLIED)
    return {row["number"]: (row["name"], row["checksum"]) for row in rows}


def _missing(
    applied: dict[int, tuple[str, str]], migrations: Sequence[Migration]
) -> list[Migration]:
    """What is to be applied; raises if what is applied is not what we know."""
    highest = max((migration.number for migration in migrations), default=0)
    newest = max(applied, default=0)
    if newest > highest:
        raise CatalogTooNew(
            f"the catalog is at version {newest}, this Moorline knows up to {highest}: "
            "start the newer Moorline that wrote it, or give this one another catalog."
        )
    for migration in migrations:
        name, checksum = applied.get(migration.number, (migration.name, migration.checksum))
        if checksum != migration.checksum:
            raise StartError(
                f"migration {migration.number} was applied to this catalog as {name!r} with "
                f"checksum {checksum[:12]}, this Moorline has {migration.name!r} with "
                f"{migration.checksum[:12]}: start the Moorline that wrote the catalog, "
                "or give this one another catalog."
            )
    return [migration for migration in migrations if migration.number not in applied]
