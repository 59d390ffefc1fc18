"""The Python client of records against real nodes over a real Postgres, scenario by scenario."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.records.relay import NOWHERE, Relay
from tests.records.site import Site, opened_site

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.moor import Moor
from moorline.client.records.table import RecordTable
from moorline.errors import BadFilter, NoSuchTable
from moorline.node.node import Node
from moorline.records.renewal import renew

MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 1000) n"
SOON = moorline.RecordSettings(return_ms=50, return_ms_max=500)
PATIENCE_S = 60.0


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(MANY)
        yield site


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async with Relay().open() as relay:
        yield relay


@contextlib.asynccontextmanager
async def opened(address: str, **options: Any) -> AsyncIterator[RecordTable]:
    used: dict[str, Any] = {"where": {"workspace_id": 1}, "settings": SOON} | options
    async with (
        moorline.connect(address) as moor,
        moor.records("things", **used) as table,
    ):
        yield table


def held(table: RecordTable) -> dict[tuple[str, ...], tuple[int, dict[str, Any]]]:
    return {(str(key),): (table.rows.seq(key), table.rows[key]) for key in table.rows}


async def equal(site: Site, table: RecordTable, where: str = "workspace_id = 1") -> None:
    """State equal: the copy is the filtered and permitted table, and says that it is in sync."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not table.is_synced or held(table) != await site.table(where):
                await asyncio.sleep(0.01)
    except TimeoutError:
        wanted, found = await site.table(where), held(table)
        differing = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
        raise AssertionError(
            f"{len(differing)} rows differ, such as {differing[:5]}; synced: {table.is_synced}, "
            f"connected: {table.is_connected}, refused: {table.refusal}"
        ) from None
    table._copy.copy.check()


def address_of(node: Node) -> str:
    return str(node.addresses[0])


async def next_of(changes: Any, kind: str) -> moorline.RecordChange:
    async with asyncio.timeout(PATIENCE_S):
        async for change in changes:
            if change.kind.value == kind:
                return change  # type: ignore[no-any-return]
    raise AssertionError(f"no {kind} came")


async def test_a_first_sync_and_then_what_changes(site: Site) -> None:
    node = await site.node()
    async with opened(address_of(node)) as table:
        assert table.is_synced
        await equal(site, table)
        changes = table.changes()
        await site.execute(
            "update things set state = 'RUNNING' where id = 1",
            "delete from things where id = 4",
            "update things set workspace_id = 2 where id = 7",
            "update things set workspace_id = 1 where id = 2",
            "insert into things values (9001, 1, 'NEW', 'new')",
        )
        await equal(site, table)
        assert (await next_of(changes, "record")).row["workspace_id"] == 1
        assert table.rows[9001]["note"] == "new"
        assert {4, 7}.isdisjoint(table.rows)


OFFLINE = {
    "T20 an update of a known record": "update things set state = 'DONE' where id = 1",
    "T21 a deletion": "delete from things where id = 4",
    "T22 a fallout by a column that changes": "update things set workspace_id = 2 where id = 7",
    "T23 an old record falls in": "update things set workspace_id = 1 where id = 2",
}


@pytest.mark.parametrize("how", ["replay", "digest"])
async def test_t20_to_t23_offline_changes(site: Site, relay: Relay, how: str) -> None:
    node = await site.node()
    relay.lead_to(address_of(node))
    async with opened(relay.address) as table:
        changes = table.changes()
        for change in OFFLINE.values():
            relay.target = NOWHERE
            relay.cut()
            await next_of(changes, "disconnected")
            await site.execute(change)
            if how == "digest":
                table._copy.copy.cursor = ""
            relay.lead_to(address_of(node))
            assert (await next_of(changes, "synced")).how == how
            await equal(site, table)


@pytest.mark.parametrize("seed", range(3))
async def test_t24_random_mixes_on_a_thousand_records(site: Site, relay: Relay, seed: int) -> None:
    chance = random.Random(seed)
    node = await site.node()
    relay.lead_to(address_of(node))
    async with opened(relay.address) as table:
        for _ in range(4):
            relay.target = NOWHERE
            relay.cut()
            for _ in range(chance.choice((1, 10, 100))):
                key = chance.randrange(1, 1_200)
                await site.execute(
                    chance.choice(
                        (
                            f"update things set workspace_id = {chance.randrange(3)} where id = {key}",
                            f"update things set note = note || 'x' where id = {key}",
                            f"delete from things where id = {key}",
                            f"insert into things values ({key}, 1, 'NEW', '') on conflict do nothing",
                            f"update things set state = 'MANY' where id % 7 = {key % 7}",
                        )
                    )
                )
            if chance.random() < 0.5:
                table._copy.copy.cursor = ""
            relay.lead_to(address_of(node))
            await equal(site, table)


async def test_t25_another_node_goes_on_where_the_first_one_died(site: Site, relay: Relay) -> None:
    first, second = await site.node("node-1"), await site.node("node-2")
    relay.lead_to(address_of(first))
    async with opened(relay.address) as table:
        changes = table.changes()
        relay.lead_to(address_of(second))
        await site.stop("node-1")
        await site.execute(*OFFLINE.values())
        assert (await next_of(changes, "synced")).how == "replay"
        await equal(site, table)


async def test_t26_a_return_while_writes_go_on_leaves_no_hole(site: Site, relay: Relay) -> None:
    node = await site.node()
    relay.lead_to(address_of(node))
    is_over = asyncio.Event()

    async def write(seed: int) -> None:
        chance = random.Random(seed)
        connection = await asyncpg.connect(site.dsn)
        try:
            while not is_over.is_set():
                key = chance.randrange(1, 1_000)
                workspace = chance.randrange(3)
                await connection.execute(
                    "update things set workspace_id = $1, note = $2 where id = $3",
                    workspace,
                    str(chance.random()),
                    key,
                )
        finally:
            await connection.close()

    async with opened(relay.address) as table, asyncio.TaskGroup() as group:
        for seed in range(3):
            group.create_task(write(seed))
        changes = table.changes()
        for turn in range(8):
            relay.cut()
            if turn % 2:
                table._copy.copy.cursor = ""
            await next_of(changes, "synced")
        is_over.set()
    async with opened(relay.address) as table:
        await equal(site, table)


async def test_t27_cut_at_many_places_of_a_sync_and_resumed(site: Site, relay: Relay) -> None:
    """By bytes: a sync of some 30,000 is cut behind more and more of them."""
    node = await site.node()
    relay.lead_to(address_of(node))
    for turn in range(12):
        async with opened(relay.address, wait=False) as table:
            # As far as this has come: a message, or a part of one.
            for _ in range(turn):
                await asyncio.sleep(0)
            relay.cut()
            await site.execute(f"update things set note = 'turn {turn}' where id % 50 = 1")
            await equal(site, table)


async def test_t31_t33_another_filter_and_the_last_one_wins(site: Site) -> None:
    node = await site.node()
    async with opened(address_of(node)) as table:
        await site.execute("update things set note = 'in flight' where id < 100")
        first = asyncio.create_task(table.change({"workspace_id": 0}))
        second = asyncio.create_task(table.change({"workspace_id": 2, "state": ["NEW", "DONE"]}))
        await asyncio.wait_for(asyncio.gather(first, second), PATIENCE_S)
        await equal(site, table, "workspace_id = 2")
        await site.execute("update things set state = 'GONE' where id = 2")
        await equal(site, table, "workspace_id = 2 and state in ('NEW', 'DONE')")


async def test_t34_one_of_three_tables_ends_and_the_others_go_on(site: Site) -> None:
    await site.register("others")
    await site.execute("insert into others values (1, 1, 'NEW', 'o')")
    node = await site.node()
    async with moorline.connect(address_of(node)) as moor, contextlib.AsyncExitStack() as stack:
        things = await stack.enter_async_context(moor.records("things", settings=SOON))
        part = await stack.enter_async_context(
            moor.records("things", where={"workspace_id": 1}, settings=SOON)
        )
        others = await stack.enter_async_context(moor.records("others", settings=SOON))
        await part.close()
        await site.execute(
            "update things set note = 'later' where id < 10", "update others set note = 'later'"
        )
        await equal(site, things, "true")
        async with asyncio.timeout(PATIENCE_S):
            while others.rows[1]["note"] != "later":
                await asyncio.sleep(0.01)
        assert part.rows[1]["note"] == "n"


async def test_t42_a_stale_version_is_found_by_digest(site: Site, tmp_path: Path) -> None:
    """Equal ids, one stale version: as writes without triggers make it, or a cache that was changed."""
    node = await site.node()
    path = tmp_path / "cache"
    async with opened(address_of(node), cache=path) as table:
        await equal(site, table)
    forge(path, table)
    async with opened(address_of(node), cache=path) as table:
        assert table.how == "digest", "its cursor is of other rows"
        await equal(site, table)
        assert table.cache_set_aside is None, "its own check was right"


def forge(path: Path, table: RecordTable) -> None:
    from moorline.client.records.cache import RowCache

    cache = RowCache(path, table._copy.asked)
    contents = cache.open()
    assert contents is not None
    seq, row = contents.rows[("1",)]
    cache.write([(("1",), (seq + 1_000_000, row))], contents.facts, contents.salt, contents.cursor)
    cache.close()


async def test_a_cache_across_restarts_with_changes_in_between(site: Site, tmp_path: Path) -> None:
    first = await site.node("node-1")
    path = tmp_path / "cache"
    async with opened(address_of(first), cache=path) as table:
        await equal(site, table)
    await site.execute(*OFFLINE.values())
    second = await site.node("node-2")
    await site.stop("node-1")
    hows = []
    async with opened(address_of(second), cache=path) as table:
        hows.append(table.how)
        await equal(site, table)
    await site.execute("truncate things", MANY)
    async with opened(address_of(second), cache=path) as table:
        hows.append(table.how)
        await equal(site, table)
    async with opened(address_of(second), cache=path, where={"workspace_id": 2}) as table:
        assert table.cache_set_aside == tmp_path / "cache.aside-1"
        await equal(site, table, "workspace_id = 2")
    assert hows == ["replay", "digest"]


async def as_olga(moor: Moor, tmp_path: Path) -> Path:
    await moor.access.add_user("olga", b"swordfish")
    token = (await moor.access.add_token("olga", "t")).token
    path = tmp_path / "token"
    path.write_text(token)
    path.chmod(0o600)
    return path


async def test_t50_t51_rights_change_while_online(site: Site, tmp_path: Path) -> None:
    node = await site.node()
    async with moorline.connect(address_of(node)) as operator:
        token = await as_olga(operator, tmp_path)
        await operator.access.add_grant("/records/things/1", "olga", "s")
        await operator.access.add_grant("/records/things/2", "olga", "s")
        async with (
            moorline.connect(address_of(node), token_file=token) as moor,
            moor.records("things", settings=SOON) as table,
        ):
            await equal(site, table, "workspace_id in (1, 2)")
            await operator.access.remove_grant("/records/things/2", "olga")
            await equal(site, table, "workspace_id = 1")
            await operator.access.add_grant("/records/things/0", "olga", "s")
            await equal(site, table, "workspace_id in (0, 1)")
            changes = table.changes()
            await operator.access.remove_grant("/records/things/0", "olga")
            await operator.access.remove_grant("/records/things/1", "olga")
            await next_of(changes, "refused")
            assert isinstance(table.refusal, NoSuchTable)
            assert len(table.rows) == 0
            await operator.access.add_grant("/records/things/1", "olga", "s")
            await equal(site, table, "workspace_id = 1")


async def test_what_cannot_be_asked_for_is_refused_by_name(site: Site) -> None:
    node = await site.node()
    async with moorline.connect(address_of(node)) as moor:
        with pytest.raises(NoSuchTable):
            async with moor.records("nothing"):
                pass
        with pytest.raises(BadFilter, match="note"):
            async with moor.records("things", where={"note": "x"}):
                pass
        with pytest.raises(BadFilter, match="workspace_id cannot be 'x'"):
            async with moor.records("things", where={"workspace_id": "x"}):
                pass


async def test_columns_and_ranges(site: Site) -> None:
    node = await site.node()
    where = {"workspace_id": {">=": 1, "<": 2}}
    async with opened(address_of(node), where=where, columns=["state"]) as table:
        assert table.rows[1] == {"id": 1, "state": "NEW"}
        assert len(table.rows) == 334


async def test_t60_a_client_that_does_not_read_delays_nobody_and_catches_up(site: Site) -> None:
    node = await site.node()
    async with opened(address_of(node)) as slow, opened(address_of(node)) as other:
        caller = slow._copy._caller
        assert caller is not None
        caller.hold_reading("a test wants it")
        for turn in range(6):
            await site.execute(
                f"update things set note = repeat('{turn}', 30000) where workspace_id = 1"
            )
            await equal(site, other)
        assert slow.rows[1]["note"] != other.rows[1]["note"]
        caller.release_reading("a test wants it")
        await equal(site, slow)
        assert slow.is_connected


async def test_t68_records_of_a_frame_and_of_many_pass(site: Site) -> None:
    node = await site.node()
    async with opened(address_of(node)) as table:
        for size in (500_000, 1 << 20, 5_000_000):
            await site.execute(f"update things set note = repeat('x', {size}) where id in (1, 4)")
            await equal(site, table)
        changes = table.changes()
        await site.execute("update things set note = '' where id in (1, 4)")
        await equal(site, table)
        assert {(await anext(changes)).kind.value for _ in range(2)} == {"record"}


async def test_t41_where_everything_differs_all_rows_come(site: Site, tmp_path: Path) -> None:
    """Of 140,000 rows the hashes are more than a message: the node answers with the rows."""
    many = "insert into things select n, 1, 'NEW', '' from generate_series(2000, 141999) n"
    await site.execute(many)
    node = await site.node()
    path = tmp_path / "cache"
    async with opened(address_of(node), cache=path) as table:
        assert len(table.rows) == 140_334
    await site.execute("truncate things", many)
    async with opened(address_of(node), cache=path) as table:
        assert table.how == "full"
        await equal(site, table)


@pytest.mark.parametrize("how", ["cursor", "digest"])
async def test_t40_who_missed_nothing_comes_back_in_less_than_100_bytes(
    site: Site, relay: Relay, how: str
) -> None:
    """Both ways together, behind the handshake of the link, which a link without records has too."""
    node = await site.node()
    relay.lead_to(str(node.addresses[0]))
    async with moorline.connect(relay.address) as moor:
        link_bytes = relay.bytes
        assert link_bytes > 0
        # It would come back beside the copy, and be counted with it.
        relay.spare()
        async with moor.records("things", settings=SOON) as table:
            for changed in (False, False, True, False):
                heard = table.changes()
                relay.target = NOWHERE
                relay.cut()
                await kind_of(heard, "disconnected")
                if how == "digest":
                    # As one that is older than the log, or of other rights.
                    table._copy.copy.cursor = ""
                if changed:
                    await site.execute("update things set note = 'other' where id = 7")
                relay.bytes = 0
                relay.lead_to(str(node.addresses[0]))
                synced = await kind_of(heard, "synced")
                spent = relay.bytes - link_bytes
                heard.close()
                assert synced.how == ("digest" if changed and how == "digest" else "replay")
                assert (spent < 100) is not changed, spent
            assert held(table) == await site.table()


async def test_who_comes_back_in_few_bytes_to_other_columns_gets_all_rows(
    site: Site, relay: Relay
) -> None:
    node = await site.node()
    relay.lead_to(str(node.addresses[0]))
    async with (
        moorline.connect(relay.address) as moor,
        moor.records("things", settings=SOON) as table,
    ):
        for statement in ("alter table things add column more text default 'm'", ""):
            heard = table.changes()
            relay.cut()
            await kind_of(heard, "disconnected")
            if statement:
                await site.execute(statement)
            else:
                await renew(site.connection, "things")
            await kind_of(heard, "synced")
            heard.close()
            await equal(site, table, "true")
            assert table.rows[1]["more"] == "m"


async def kind_of(changes: Any, kind: str) -> moorline.RecordChange:
    async with asyncio.timeout(PATIENCE_S):
        async for change in changes:
            if change.kind.value == kind:
                return change  # type: ignore[no-any-return]
    raise AssertionError("the copy has ended")
