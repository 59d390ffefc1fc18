"""Act: records. A table of Postgres is followed live by a client that may see a part of it; it leaves, comes
back, and loses a right in mid-stream. A digest proves that it holds what it should."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg

import moorline
from moorline.demo.stage import Stage

TITLE = "records of a table"

TABLE = "moorings"
ROWS = 3_000
USER = "carl"
HARBOURS = ("1", "2")
LOST = "2"
WHERE = {"state": ["taken", "booked"]}
SOON = moorline.RecordSettings(return_ms=100)
"""Who is cut returns within five seconds, by chance: many do not return at once. Here there is one."""
PATIENCE_S = 60

MAKE = f"""
create table {TABLE} (id bigint primary key, harbour integer not null, state text not null, ship text);
insert into {TABLE}
select n, n % 3, (array['free', 'taken', 'booked'])[1 + n / 3 % 3], 'ship ' || n
from generate_series(1, {ROWS}) n;
"""
SEEN = f"select count(*) from {TABLE} where state <> 'free' and harbour = any($1::integer[])"


async def play(stage: Stage) -> None:
    async with asyncio.timeout(PATIENCE_S), contextlib.AsyncExitStack() as stack:
        folder = (stage.data / "run").resolve()
        postgres = await asyncpg.connect(f"postgresql://postgres@/postgres?host={folder}&port=5432")
        stack.push_async_callback(postgres.close)
        await postgres.execute(MAKE)
        await register(stage)
        stage.tell(TITLE, f"a table of Postgres with {ROWS:,} rows is registered as", TABLE)
        operator = await stack.enter_async_context(moorline.connect(stage.address))
        token = await a_user(operator)
        moor = await stack.enter_async_context(
            moorline.connect(stage.address, credentials=moorline.TokenCredentials(token))
        )
        cache = stage.folder / "moorings.cache"
        await follow(stage, moor, postgres, cache)
        await return_and_lose(stage, moor, operator, postgres, cache)


async def register(stage: Stage) -> None:
    """As a user does it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moorline.cli.main", "records", "add", TABLE),
        *("--key=id", "--owner=harbour", "--filter=state", f"--data={stage.data}"),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0, "the table is not registered"


async def a_user(operator: moorline.Moor) -> str:
    await operator.access.add_user(USER)
    for harbour in HARBOURS:
        await operator.access.add_grant(f"/records/{TABLE}/{harbour}", USER, "s")
    return (await operator.access.add_token(USER, "demo")).token


@contextlib.asynccontextmanager
async def opened(moor: moorline.Moor, cache: Path) -> AsyncIterator[moorline.RecordTable]:
    async with moor.records(TABLE, where=WHERE, cache=cache, settings=SOON) as table:
        yield table


async def follow(
    stage: Stage, moor: moorline.Moor, postgres: asyncpg.Connection, cache: Path
) -> None:
    async with opened(moor, cache) as table:
        assert len(table.rows) == await seen(postgres, HARBOURS)
        stage.tell(
            TITLE,
            f"{USER} may see two of three harbours, and filters: rows",
            f"{len(table.rows):,}",
        )
        changes = table.changes()
        key = next(iter(table.rows))
        started_s = time.perf_counter()
        await postgres.execute(f"update {TABLE} set ship = 'Fram' where id = $1", key)
        async for change in changes:
            if change.key == key and change.row is not None and change.row["ship"] == "Fram":
                break
        took_ms = (time.perf_counter() - started_s) * 1_000
        stage.tell(TITLE, "an update by SQL is at the client in", f"{took_ms:,.0f} ms")


async def return_and_lose(
    stage: Stage,
    moor: moorline.Moor,
    operator: moorline.Moor,
    postgres: asyncpg.Connection,
    cache: Path,
) -> None:
    await postgres.execute(
        f"update {TABLE} set ship = 'Gjøa' where id in (select id from {TABLE} where state = 'taken' "
        "and harbour = 1 order by id limit 3)"
    )
    async with opened(moor, cache) as table:
        found = sum(row["ship"] == "Gjøa" for row in table.rows.values())
        assert (table.how, found) == ("replay", 3), (table.how, found)
        stage.tell(
            TITLE, "3 rows are updated while it is away; its cursor finds them by", table.how
        )
        before = len(table.rows)
        started_s = time.perf_counter()
        await operator.access.remove_grant(f"/records/{TABLE}/{LOST}", USER, "s")
        left = tuple(one for one in HARBOURS if one != LOST)
        wanted, changes = await seen(postgres, left), table.changes()
        while not table.is_synced or len(table.rows) != wanted:
            await anext(changes)
        took_ms = (time.perf_counter() - started_s) * 1_000
        assert {row["harbour"] for row in table.rows.values()} == {int(one) for one in left}
        stage.tell(
            TITLE, "one harbour is taken from it: rows that vanish", f"{before - len(table.rows):,}"
        )
        stage.tell(TITLE, "cut, back, and proven again in", f"{took_ms:,.0f} ms")
        stage.claim(
            TITLE,
            "rows vanish from a client that may not see them any more, and a digest proves the rest",
            f"{before - len(table.rows):,} rows gone, proven after {took_ms:,.0f} ms",
        )
        stage.tell(
            TITLE,
            "the digest of node and client, of all that is left",
            f"{table.digest.count:,} rows, {table.digest.hash.hex()[:16]}…",
        )


async def seen(postgres: asyncpg.Connection, harbours: tuple[str, ...]) -> int:
    """What it should hold, as Postgres counts it."""
    found: int = await postgres.fetchval(SEEN, [int(one) for one in harbours])
    return found
