"""`moor records add`, `remove`, `list`, `check` and `renew`, as functions, on a real Postgres."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import asyncpg
import pytest
from tests.records.bed import THINGS, Bed

from moorline.catalog import EmbeddedPostgres
from moorline.errors import TableBusy, TableRefused
from moorline.records.checking import check
from moorline.records.database import Database
from moorline.records.opening import open_capture
from moorline.records.pruning import prune
from moorline.records.registration import Wanted, add, registrations, remove
from moorline.records.renewal import renew

pytestmark = pytest.mark.process

WANTED = Wanted("things", ("id",), filters=("workspace_id", "state"))

TRACES = """
select 'column ' || attname from pg_attribute where attname like 'moor%' and not attisdropped
union all select 'relation ' || relname from pg_class where relname like '%moorline%' or
relnamespace::regnamespace::text like 'moorline%' union all select 'trigger ' || tgname from pg_trigger where
tgname like '%moorline%'
union all select 'schema ' || nspname from pg_namespace where nspname like 'moorline%'
union all select 'function ' || proname from pg_proc where pronamespace::regnamespace::text like 'moorline%'
"""


async def traces(connection: asyncpg.Connection) -> list[str]:
    return [row[0] for row in await connection.fetch(TRACES)]


@pytest.mark.parametrize("capture", ["log", "notify"])
async def test_remove_takes_every_trace_away(
    connection: asyncpg.Connection, capture: Literal["log", "notify"]
) -> None:
    await connection.execute(THINGS)
    await connection.execute(
        "create table parts (id integer, thing bigint references things, k text, primary key (id, "
        "k)) partition by list (k);"
        "create table parts_a partition of parts for values in ('a')"
    )
    await connection.execute("insert into things values (1, 1, 'a')")
    before = await connection.fetch("select * from things")
    await add(connection, Wanted("things", ("id",), filters=("state",), capture=capture))
    await add(
        connection, Wanted("parts", ("id", "k"), owner_from="things.workspace_id", capture=capture)
    )
    assert [one.name for one in await registrations(connection)] == ["parts", "things"]
    assert await check(connection, "things") == []
    assert await check(connection, "parts") == []
    await remove(connection, "parts")
    assert await check(connection, "things") == []
    await remove(connection, "things")
    assert await traces(connection) == []
    assert await connection.fetch("select * from things") == before


async def test_the_rows_are_not_written_anew(connection: asyncpg.Connection) -> None:
    await connection.execute(THINGS)
    await connection.execute("insert into things select i from generate_series(1, 1000) i")
    node = "select relfilenode from pg_class where relname = 'things'"
    place = "select array_agg(ctid order by id) from things"
    before = await connection.fetchval(node), await connection.fetchval(place)
    await add(connection, WANTED)
    assert before == (await connection.fetchval(node), await connection.fetchval(place))


async def test_a_dry_run_changes_nothing_and_says_all(connection: asyncpg.Connection) -> None:
    await connection.execute(THINGS)
    planned = await add(connection, WANTED, dry_run=True)
    assert await traces(connection) == []
    text = "\n".join(planned.statements)
    for part in (
        "moor_seq",
        "zzz_moorline_stamp",
        "create index concurrently",
        "log_limit_1",
        "create schema",
    ):
        assert part in text
    # What it says is what is done: the same statements, by hand.
    for statement in planned.statements:
        await connection.execute(statement)
    assert await check(connection, "things") == []
    removal = await remove(connection, "things", dry_run=True)
    assert await registrations(connection)
    for statement in removal:
        await connection.execute(statement)
    assert await traces(connection) == []


REFUSED = {
    "create view things as select 1 as id": "a view",
    "create materialized view things as select 1 as id": "materialized",
    "create temporary table things (id integer primary key)": "temporary",
    "create unlogged table things (id integer primary key)": "unlogged",
    "create table things (id integer)": "null",
    "create table things (id integer not null)": "no unique index",
    "create table things (id integer not null); create unique index on things (id) where id > "
    "5": "no unique index",
    "create table things (id integer not null unique deferrable)": "no unique index",
    "create table things (id integer not null, b integer not null, unique (id, b))": "no unique index",
    "create table things (other integer primary key)": "no column id",
    "create table things (id char(3) primary key)": "no key",
    "create table things (id numeric primary key)": "no key",
    "create table things (id timestamptz primary key)": "no key",
    "create table things (id integer primary key, state json)": "nothing is filtered",
    "create table things (id integer primary key, state char(3))": "nothing is filtered",
    "create table things (id integer primary key, state integer[])": "nothing is filtered",
    "create table things (id integer primary key, state real)": "nothing is filtered",
    "create table things (id integer primary key, x integer, state integer generated always as (x) "
    "stored)": "generates",
    "create table things (id integer primary key, state text, moor_seq integer)": "moor_seq already",
    "create table p (id integer not null, state text, unique (id)) partition by list (id); create table things partition of p default": "is a partition",  # noqa: E501
    "create table things (id integer primary key, state text); create table child () inherits "
    "(things)": "inherits",
    "select 1": "there is no table",
}


@pytest.mark.parametrize("definition", REFUSED)
async def test_what_cannot_be_served_is_refused_with_the_reason(
    connection: asyncpg.Connection, definition: str
) -> None:
    await connection.execute(definition)
    wanted = Wanted("things", ("id",), filters=("state",) if "state" in definition else ())
    for dry_run in (True, False):
        with pytest.raises(TableRefused, match=REFUSED[definition]):
            await add(connection, wanted, dry_run=dry_run)
    left = [trace for trace in await traces(connection) if trace != "column moor_seq"]
    assert left == []


async def test_foreign_tables_are_refused(connection: asyncpg.Connection) -> None:
    await connection.execute(
        "create foreign data wrapper nothing; create server nowhere foreign data wrapper nothing;"
        "create foreign table things (id integer) server nowhere;"
        "create table whole (id integer not null, k text not null) partition by list (k);"
        "create foreign table part partition of whole for values in ('a') server nowhere"
    )
    with pytest.raises(TableRefused, match="foreign table"):
        await add(connection, Wanted("things", ("id",)))
    with pytest.raises(TableRefused, match="foreign table"):
        await add(connection, Wanted("whole", ("id",)))


async def test_a_database_of_bytes_without_characters_is_refused(
    postgres: EmbeddedPostgres, connection: asyncpg.Connection
) -> None:
    await connection.execute("drop database if exists bytes")
    await connection.execute(
        "create database bytes encoding 'SQL_ASCII' locale_provider libc locale 'C' template template0"
    )
    other = await asyncpg.connect(postgres.dsn, database="bytes")
    try:
        await other.execute("create table things (id integer primary key)")
        with pytest.raises(TableRefused, match="SQL_ASCII"):
            await add(other, Wanted("things", ("id",)))
    finally:
        await other.close()
        await connection.execute("drop database bytes")


async def test_names_and_tables_are_registered_once(connection: asyncpg.Connection) -> None:
    await connection.execute(THINGS)
    await connection.execute(
        "create schema other; create table other.things (id integer primary key)"
    )
    await add(connection, WANTED)
    with pytest.raises(TableRefused, match="registered already"):
        await add(connection, WANTED)
    with pytest.raises(TableRefused, match="another --name"):
        await add(connection, Wanted("other.things", ("id",)))
    for name in ("a/b", "..", "", "x y"):
        if name:
            with pytest.raises(TableRefused, match="--name"):
                await add(connection, Wanted("other.things", ("id",), name=name))
    await add(connection, Wanted("other.things", ("id",), name="others"))
    assert [one.n for one in await registrations(connection)] == [2, 1]


async def test_a_table_that_others_hold_is_left_alone(
    connection: asyncpg.Connection, dsn: str
) -> None:
    await connection.execute(THINGS)
    other = await asyncpg.connect(dsn)
    await other.execute("begin; insert into things values (1)")
    with pytest.raises(TableBusy, match="Nothing was changed"):
        await add(connection, WANTED, lock_ms=20)
    assert await traces(connection) == []
    # And it has it when they are done in time.
    adding = asyncio.create_task(add(connection, WANTED, lock_ms=100))
    await other.execute("commit")
    await adding
    await other.execute("begin; insert into things values (2)")
    with pytest.raises(TableBusy):
        await remove(connection, "things", lock_ms=20)
    assert await connection.fetchval("select count(*) from moorline_records.registration") == 1
    await other.close()


async def test_an_index_that_fails_takes_the_registration_back(
    connection: asyncpg.Connection,
) -> None:
    await connection.execute(THINGS)
    # Somebody else has the name that the index would get.
    oid = await connection.fetchval("select 'things'::regclass::oid")
    await connection.execute(f"create table moorline_xid_1_{oid} (id integer)")
    with pytest.raises(TableRefused, match="everything was taken back"):
        await add(connection, WANTED)
    await connection.execute(f"drop table moorline_xid_1_{oid}")
    assert await traces(connection) == []


@pytest.fixture
async def roles(connection: asyncpg.Connection) -> AsyncIterator[tuple[str, str, str]]:
    """Who owns the table, who serves it, and who writes to it: three ordinary roles."""
    suffix = await connection.fetchval("select current_database()")
    names = tuple(f"{role}_{suffix}" for role in ("owner", "reader", "writer"))
    for name in names:
        await connection.execute(f"create role {name} login")
    yield names  # type: ignore[misc]
    for name in names:
        await connection.execute(f"drop owned by {name} cascade; drop role {name}")


async def test_the_least_roles(
    connection: asyncpg.Connection, dsn: str, roles: tuple[str, str, str]
) -> None:
    owner, reader, writer = roles
    database = await connection.fetchval("select current_database()")
    await connection.execute(
        f"{THINGS} alter table things owner to {owner}; grant select, insert, update, delete on "
        f"things to {writer};"
        f"grant usage on schema public to {owner}, {reader}, {writer}"
    )
    as_owner = await asyncpg.connect(dsn, user=owner)
    with pytest.raises(TableRefused, match="grant create on database"):
        await add(as_owner, WANTED)
    await connection.execute(f"grant create on database {database} to {owner}")
    # The index of a table goes to its schema.
    await connection.execute(f"grant create on schema public to {owner}")
    await add(as_owner, Wanted("things", ("id",), filters=("state",), reader=reader))
    as_writer = await asyncpg.connect(dsn, user=writer)
    with pytest.raises(TableRefused, match="owner_"):
        await add(as_writer, Wanted("things", ("id",)))
    for statement in (
        "insert into things values (1, 1, 'a')",
        "update things set state = 'b'",
        "delete from things",
    ):
        await as_writer.execute(statement)
    for forbidden in (
        "insert into moorline_records.log_1 (n, xid, at, kind) values (99, '1', now(), 'T')",
        "select nextval('moorline_records.seq_1')",
        "select setval('moorline_records.log_limit_1', 5)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await as_writer.execute(forbidden)
    address = dsn.replace("postgres@", f"{reader}@")
    async with Database.open(address) as served, open_capture(served, "things") as capture:
        since = await capture.position()
        await as_writer.execute("insert into things values (2, 1, 'a')")
        async with capture.step(since) as step:
            assert [change.key async for part in step.changes() for change in part] == [("2",)]
        async with served.connection() as mine:
            (registration,) = await registrations(mine)
            await prune(mine, registration, life_s=0)
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await mine.execute("delete from public.things")
    assert await check(as_owner, "things") == []
    await remove(as_owner, "things")
    for one in (as_owner, as_writer):
        await one.close()


async def test_check_finds_what_bypasses_triggers_and_renew_mends_it(log_bed: Bed) -> None:
    bed = log_bed
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'a'), (2, 1, 'a')")
    async with bed.copy() as copy:
        await bed.execute("alter table things disable trigger all")
        assert {fault.code for fault in await check(bed.connection, "things")} == {"bypassed"}
        await bed.execute(
            "update things set state = 'unseen' where id = 1",
            "alter table things enable trigger all",
        )
        assert {fault.code for fault in await check(bed.connection, "things")} == {"bypassed"}
        assert await copy.step() == []
        seq = copy.rows[("1",)][0]
        renewed = await renew(bed.connection, "things", is_touching=True)
        assert renewed.touched >= 1
        assert await check(bed.connection, "things") == []
        await bed.check_resynced(copy, "epoch")
        # A digest of keys and numbers would not have shown it; now it does.
        assert copy.rows[("1",)][0] > seq
        assert copy.rows[("1",)][1]["state"] == "unseen"


CHANGED_WITHOUT_A_NUMBER = {
    "in a detached partition": (
        "alter table things detach partition things_eu",
        "update things_eu set note = 'changed'",
        "alter table things attach partition things_eu for values in ('eu')",
    ),
    "by a statement that writes the table anew": (
        "alter table things alter column note type text using 'changed'",
    ),
}


@pytest.mark.parametrize("how", CHANGED_WITHOUT_A_NUMBER)
async def test_renew_with_touch_mends_what_was_changed_without_a_number(
    log_bed: Bed, how: str
) -> None:
    """A client that was away for all of it holds the same keys and numbers."""
    bed = log_bed
    await bed.execute(
        "create table things (id integer, region text, note text, primary key (id, region)) "
        "partition by list (region)",
        "create table things_eu partition of things for values in ('eu')",
    )
    await bed.add(key=("id", "region"), filters=("region",))
    await bed.execute("insert into things values (1, 'eu', 'before')")
    async with bed.copy() as copy:
        seq = copy.rows["1", "eu"][0]
        await bed.execute(*CHANGED_WITHOUT_A_NUMBER[how])
        renewed = await renew(bed.connection, "things", is_touching=True)
        assert renewed.touched == 1
        await bed.check_resynced(copy, "epoch")
        assert copy.rows["1", "eu"][0] > seq
        assert copy.rows["1", "eu"][1]["note"] == "changed"


async def test_check_names_what_is_missing(log_bed: Bed) -> None:
    bed = log_bed
    await bed.things()
    await bed.execute("drop trigger zzz_moorline_log_delete on things")
    (fault,) = await check(bed.connection, "things")
    assert (fault.code, "zzz_moorline_log_delete" in fault.text) == ("trigger", True)
    with pytest.raises(TableRefused, match="missing"):
        await renew(bed.connection, "things")
    await remove(bed.connection, "things")
    await bed.add()
    index = await bed.connection.fetchval(
        "select indexrelid::regclass::text from pg_index where indexrelid::regclass::text like "
        "'moorline_xid%'"
    )
    await bed.execute(f"drop index {index}")
    assert [fault.code for fault in await check(bed.connection, "things")] == ["index"]
    await bed.execute("drop table things")
    assert [fault.code for fault in await check(bed.connection, "things")] == ["dropped"]
    await bed.execute(THINGS)
    assert [fault.code for fault in await check(bed.connection, "things")] == ["restored"]
    await remove(bed.connection, "things")
    assert await traces(bed.connection) == []


async def test_a_registered_column_is_neither_dropped_nor_changed(bed: Bed) -> None:
    await bed.things()
    for change in (
        "drop column state",
        "alter column workspace_id type bigint",
        "alter column id type integer",
    ):
        with pytest.raises(
            (asyncpg.DependentObjectsStillExistError, asyncpg.FeatureNotSupportedError)
        ):
            await bed.execute(f"alter table things {change}")
    # Writers go on, and other columns are free.
    await bed.execute(
        "alter table things alter column note type varchar(100)",
        "insert into things values (1, 1, 'a')",
    )
    await bed.execute(
        "alter table things drop column state cascade",
        "insert into things values (2, 1)",
        "delete from things",
    )
    assert {fault.code for fault in await check(bed.connection, "things")} == {"column"}
    with pytest.raises(TableRefused, match="no column state"):
        async with open_capture(bed.database, "things"):
            pass


async def test_a_column_that_changes_its_type_or_comes_is_another_table(bed: Bed) -> None:
    await bed.things()
    await bed.execute("insert into things values (1, 1, 'a', '5')")
    async with bed.copy() as copy:
        await bed.execute("alter table things alter column note type integer using note::integer")
        await bed.check_resynced(copy, "schema")
        await bed.execute("alter table things add column more text default 'x'")
        await bed.check_resynced(copy, "schema")
        assert copy.rows[("1",)][1]["more"] == "x"
        assert [column.name for column in copy.capture.table.columns] == [
            "id",
            "workspace_id",
            "state",
            "note",
            "more",
        ]
        await bed.execute("update things set note = 6")
        assert len(await copy.step()) == 1
