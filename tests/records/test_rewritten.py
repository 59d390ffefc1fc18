"""Tables that are written anew while somebody reads them, and columns that change while a client is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from tests.records.bed import Bed
from tests.records.clients import AS_MSGPACK, PATIENCE_S, Held, client
from tests.records.site import Site, opened_site, url_of

import moorline
from moorline.catalog import EmbeddedPostgres

pytestmark = pytest.mark.process

ROWS = "insert into things select n, 1, 'NEW', 'n' from generate_series(1, 50) n"
REWRITES = {
    "a column is given other values": "alter table things alter column note type text using note || '!'",
    "the table is logged again": "alter table things set logged",
}


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


@asynccontextmanager
async def locked(dsn: str, statement: str) -> AsyncIterator[asyncpg.Connection]:
    """Whoever reads the table waits until the block ends, and then reads at a snapshot from before."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("begin")
        await connection.execute(statement)
        yield connection
        await connection.execute("commit")
    finally:
        await connection.close()


async def waits(connection: asyncpg.Connection) -> None:
    """Until somebody of ours waits for the lock."""
    async with asyncio.timeout(PATIENCE_S):
        while not await connection.fetchval(
            "select count(*) from pg_locks where not granted and relation = 'things'::regclass"
        ):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("why", REWRITES)
async def test_a_step_that_waited_for_a_rewrite_is_made_up_for(bed: Bed, why: str) -> None:
    """At its snapshot the table is empty: what it says of changed rows is not so."""
    await bed.things()
    await bed.execute(ROWS)
    async with bed.copy() as copy, bed.another() as other:
        if "logged" in why:
            await bed.execute("alter table things set unlogged")
            await copy.step()
            await copy.scan()
        await bed.execute("update things set state = 'RUN' where id <= 5")
        async with locked(bed.dsn, REWRITES[why]):
            stepping = asyncio.create_task(_step(copy))
            await waits(other)
        await stepping
        await bed.check_resynced(copy, "rewritten")


async def _step(copy: object) -> None:
    from tests.records.bed import Copy

    assert isinstance(copy, Copy)
    async with copy.capture.step(copy.since, is_exported=True) as step:
        if step.resync is None:
            async for part in step.changes():
                for change in part:
                    copy.apply(change)
        copy.since = step.until


async def test_vacuum_full_is_one_sync_by_digest(bed: Bed) -> None:
    await bed.things()
    await bed.execute(ROWS)
    async with bed.copy() as copy:
        before = copy.capture.table
        await bed.execute("vacuum full things")
        await bed.check_resynced(copy, "rewritten")
        assert copy.capture.table == before, "no column was given other values"
        await bed.execute("update things set state = 'RUN' where id <= 5")
        assert len(await copy.step()) == 5


async def test_a_first_sync_that_waited_for_a_rewrite_gets_the_rows(site: Site) -> None:
    await site.execute(ROWS)
    node = await site.node()
    other, held = Held("things"), Held("things")
    async with client(url_of(node), other):
        await site.equal(other)
        async with (
            locked(site.dsn, REWRITES["a column is given other values"]),
            client(url_of(node), held) as made,
        ):
            await waits(site.connection)
            await made.subscribe()
        async with client(url_of(node), held):
            await site.equal(held)
            await site.equal(other)
            assert held.contents()[("7",)]["note"] == "n!"


async def test_t69_a_column_that_is_given_other_values_comes_to_those_who_read_it(
    site: Site,
) -> None:
    """Keys and numbers of rows are as before: a digest would find nothing."""
    await site.execute(ROWS)
    node = await site.node()
    everything, some = Held("things"), Held("things", columns=["state"])
    async with client(url_of(node), everything), client(url_of(node), some):
        await site.equal(everything)
        await site.execute(REWRITES["a column is given other values"])
        await site.equal(everything)
        assert everything.contents()[("7",)]["note"] == "n!"
        assert everything.hows[-1] == "full"
        assert everything.drifts == some.drifts == 0


@pytest.mark.parametrize("form", [AS_MSGPACK, "moorline.records.json"])
@pytest.mark.parametrize(
    "change",
    [
        "alter table things add column size integer default 7",
        "alter table things drop column note",
        "alter table things alter column note type varchar(20)",
        # The same columns, and rows with the same numbers.
        REWRITES["a column is given other values"],
    ],
)
async def test_t69_a_column_that_changes_while_a_client_is_away(
    site: Site, form: str, change: str
) -> None:
    await site.execute(ROWS)
    node = await site.node()
    held, few = Held("things"), Held("things", columns=["state"])
    for one in (held, few):
        async with client(url_of(node), one, form=form):
            await site.equal(one) if one is held else await _ended(few)
        one.left()
    # What a node remembers of a table is not there when they come back.
    await site.stop()
    await site.execute(change)
    node = await site.node()
    async with client(url_of(node), held, form=form), client(url_of(node), few, form=form):
        await site.equal(held)
        await _ended(few)
    assert held.hows[0] == "full"
    assert few.hows[0] == "replay", "it reads none of what changed"


PARTED = (
    "create table parted (id bigint primary key, workspace_id integer, state text, note text) "
    "partition by range (id)",
    "create table parted_one partition of parted for values from (0) to (100)",
    "create table parted_two partition of parted for values from (100) to (200)",
    "insert into parted select n, 1, 'NEW', 'n' from generate_series(90, 110) n",
)
APART = (
    "alter table parted detach partition parted_one; update parted_one set note = 'unnumbered'; "
    "alter table parted attach partition parted_one for values from (0) to (100)"
)


@pytest.mark.parametrize("who", ["there", "away", "away, in few bytes"])
async def test_a_partition_that_was_changed_while_it_was_apart_comes_anew(
    site: Site, tmp_path: Path, who: str
) -> None:
    """Its triggers were gone with it: the rows have the numbers that they had."""
    await site.execute(*PARTED[:-1])
    await site.register("parted")
    await site.execute(PARTED[-1])
    node = await site.node()
    held = Held("parted")
    if who == "there":
        async with client(url_of(node), held):
            await site.equal(held, table="parted")
            await site.execute(APART)
            await site.equal(held, table="parted")
    elif who == "away":
        async with client(url_of(node), held):
            await site.equal(held, table="parted")
        held.left()
        await site.stop()
        await site.execute(APART)
        node = await site.node()
        async with client(url_of(node), held):
            await site.equal(held, table="parted")
        assert held.hows[0] == "full"
    else:
        path = tmp_path / "cache"
        async with moorline.connect(str(node.addresses[0])) as moor:
            async with moor.records("parted", cache=path) as table:
                assert table.rows[95]["note"] == "n"
            await site.execute(APART)
            async with moor.records("parted", cache=path) as table:
                assert table.rows[95]["note"] == "unnumbered"
                assert table.how == "full"
            await site.execute(
                "create table parted_new partition of parted for values from (200) to (300)"
            )
            async with moor.records("parted", cache=path) as table:
                assert table.how in ("replay", "digest"), "what was made as a partition has no past"
    assert held.drifts == 0


async def test_who_was_away_while_the_files_were_made_anew_gets_what_differs(site: Site) -> None:
    await site.execute(ROWS)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
    held.left()
    await site.execute("vacuum full things", "update things set note = 'm' where id = 4")
    async with client(url_of(node), held):
        await site.equal(held)
    assert held.hows[0] in ("replay", "digest")


async def _ended(held: Held) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not held.ends:
            await asyncio.sleep(0.01)
