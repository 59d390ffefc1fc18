"""Rows that Postgres takes and others cannot read as they are: they stop nobody, and nothing is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.records.clients import AS_MSGPACK, PATIENCE_S, Held, client
from tests.records.site import Site, opened_site, url_of

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.records.table import RecordTable

pytestmark = pytest.mark.process

ODD = "create table odd (id bigint primary key, config jsonb, said json, sums numeric[])"
DEEP = "[" * 2_000 + "]" * 2_000
ROWS = (
    "1, '{\"n\": 18446744073709551616}', null, null",
    "2, '{\"n\": 1e400}', null, null",
    "3, null, '\"\\ud800\"', null",
    f"4, null, '{DEEP}', null",
    "5, null, null, array[123456789012345678901234567890]",
    "6, '{\"n\": 1}', '[1, 2]', array[1.5]",
)
TOLD = {
    1: {"id": 1, "config": '{"n": 18446744073709551616}', "said": None, "sums": None},
    2: {"id": 2, "config": f'{{"n": 1{"0" * 400}}}', "said": None, "sums": None},
    3: {"id": 3, "config": None, "said": '"\\ud800"', "sums": None},
    4: {"id": 4, "config": None, "said": DEEP, "sums": None},
    5: {"id": 5, "config": None, "said": None, "sums": "[123456789012345678901234567890]"},
    6: {"id": 6, "config": {"n": 1}, "said": [1, 2], "sums": [1.5]},
}


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(ODD)
        await site.register("odd", owner=None, filters=())
        yield site


async def holds(table: RecordTable, ids: set[Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not table.is_synced or set(table.rows) != ids:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_row_that_msgpack_cannot_hold_stops_nobody(site: Site, *, is_live: bool) -> None:
    node = await site.node()
    inserts = [f"insert into odd values ({row})" for row in ROWS]
    if not is_live:
        await site.execute(*inserts)
    some = Held("odd", columns=["id"])
    async with (
        client(url_of(node), some) as page,
        moorline.connect(str(node.addresses[0])) as moor,
        moor.records("odd") as table,
        moor.records("odd", columns=["config"]) as configs,
    ):
        for number, insert in enumerate(inserts if is_live else (), 1):
            await site.execute(insert)
            await holds(table, set(range(1, number + 1)))
        await holds(table, set(TOLD))
        await holds(configs, set(TOLD))
        assert {key: table.rows[key] for key in table.rows} == TOLD
        assert configs.rows[5] == {"id": 5, "config": None}
        wanted = {(str(number),): {"id": number} for number in TOLD}
        async with asyncio.timeout(PATIENCE_S):
            while some.contents() != wanted:
                await asyncio.sleep(0.01)
        assert page.close_code is None, "nobody was cut"
        assert table.is_connected


async def test_pages_get_json_as_it_is(site: Site) -> None:
    """Browsers read all of it; their numbers are doubles."""
    node = await site.node()
    await site.execute(*(f"insert into odd values ({row})" for row in ROWS))
    held = Held("odd", columns=["config", "sums"])
    async with client(url_of(node), held):
        async with asyncio.timeout(PATIENCE_S):
            while not held.ends:
                await asyncio.sleep(0.01)
    assert held.rows[("1",)][1]["config"] == {"n": 18446744073709551616}
    assert held.rows[("2",)][1]["config"] == {"n": 10**400}
    assert held.rows[("5",)][1]["sums"] == [123456789012345678901234567890]


async def test_both_forms_of_a_websocket(site: Site) -> None:
    node = await site.node()
    await site.execute(*(f"insert into odd values ({row})" for row in ROWS))
    held = Held("odd", columns=["config"])
    async with client(url_of(node), held, form=AS_MSGPACK):
        async with asyncio.timeout(PATIENCE_S):
            while not held.ends:
                await asyncio.sleep(0.01)
        assert held.contents()[("1",)]["config"] == json.dumps({"n": 18446744073709551616})
        assert held.contents()[("6",)]["config"] == {"n": 1}


LONG = (1_023, 1_025, 5_000, 100_000)


@pytest.mark.parametrize("length", LONG)
async def test_a_long_key_is_deleted_like_any_other(site: Site, length: int) -> None:
    """An index of Postgres compresses its keys: they may be much longer than a part of its page."""
    await site.execute("create table long (id text primary key, note text)")
    await site.register("long", owner=None, filters=())
    node = await site.node()
    async with moorline.connect(str(node.addresses[0])) as moor, moor.records("long") as table:
        await site.connection.execute("insert into long values (repeat('a', $1))", length)
        await holds(table, {"a" * length})
        await site.execute("delete from long")
        await holds(table, set())
        assert table.how != "full", "it was told, and not found out by a sync from nothing"
