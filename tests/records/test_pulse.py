"""A table that has not changed for long is looked at soon when somebody writes to it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from tests.records.clients import Held, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres

pytestmark = pytest.mark.process

SELDOM = {"poll_ms_max": 60_000}
"""Without the pulse a change is heard behind a minute, which nobody here waits for."""
SOON_S = 20


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.register("others")
        yield site


async def heard(site: Site, held: Held, statement: str) -> None:
    async with asyncio.timeout(SOON_S):
        await site.execute(statement)
        await site.equal(held, table=held.table)


async def test_each_kind_of_write_is_heard_soon(site: Site) -> None:
    node = await site.node(records=SELDOM)
    held, other = Held("things"), Held("others")
    async with client(url_of(node), held, other):
        await site.equal(held)
        await site.equal(other, table="others")
        for statement in (
            "insert into things values (1, 1, 'NEW'), (2, 1, 'NEW')",
            "update things set state = 'RUN' where id = 1",
            "delete from things where id = 2",
            "truncate things",
        ):
            await heard(site, held, statement)
        await heard(site, other, "insert into others values (7, 1, 'NEW')")


async def test_a_commit_that_comes_long_behind_its_number_is_heard_by_the_next_look(
    site: Site,
) -> None:
    node = await site.node(records={"poll_ms_max": 200})
    held = Held("things")
    writer = await asyncpg.connect(site.dsn)
    async with client(url_of(node), held):
        await site.equal(held)
        await writer.execute("begin; insert into things values (1, 1, 'NEW')")
        await asyncio.sleep(0.5)
        await writer.execute("commit")
        async with asyncio.timeout(SOON_S):
            await site.equal(held)
    await writer.close()


async def test_a_connection_that_is_lost_is_opened_again(site: Site) -> None:
    node = await site.node(records=SELDOM)
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
        await heard(site, held, "insert into things values (1, 1, 'NEW')")
        await site.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'moorline' and query like '%last_value%'"
        )
        # A number that was taken while nobody looked stirs nobody: one of those behind it does.
        number = 1
        async with asyncio.timeout(SOON_S):
            while len(held.rows) < number:
                number += 1
                await site.execute(f"insert into things values ({number}, 1, 'NEW')")
                await asyncio.sleep(0.1)


async def test_a_table_that_is_registered_no_more_stops_no_other(site: Site) -> None:
    from moorline.records.registration import remove

    node = await site.node(records={"poll_ms_max": 1_000})
    held, gone = Held("things"), Held("others")
    async with client(url_of(node), held, gone):
        await site.equal(held)
        await remove(site.connection, "others")
        await until(lambda: gone.refused, "it is told")
        for number in range(3):
            await heard(site, held, f"insert into things values ({number}, 1, 'NEW')")
