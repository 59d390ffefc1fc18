"""Slow clients, lost connections, and what happens to a table while clients are there."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import asyncpg
import pytest
from tests.process.nodes import NodeProcess
from tests.records.clients import Held, RecordClient, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.catalog.address import LOST_ERRORS
from moorline.records.session import RecordSession
from moorline.records.sockets import SocketOutlet
from moorline.wire.records import Record

MANY = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 1000) n"


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        yield site


async def ended(made: RecordClient) -> None:
    await until(lambda: made.close_code is not None, "its end")


async def test_t60_a_reader_that_stops_is_bounded_and_then_gets_the_newest(site: Site) -> None:
    await site.execute("insert into things select n, 1, 'NEW', 'n' from generate_series(1, 20) n")
    node = await site.node()
    slow, other = Held("things"), Held("things")
    async with (
        client(url_of(node), slow, max_queue=1) as stopped,
        client(url_of(node), other),
    ):
        await site.equal(slow)
        await site.equal(other)
        stopped.socket.transport.pause_reading()
        slow.heard.clear()
        host = node.subjects.records.hosts["things"]  # type: ignore[union-attr]
        for number in range(400):
            await site.execute(
                f"update things set note = '{number}' || repeat('x', 50000) where id = {number % 20 + 1}"
            )
        await site.equal(other)
        sessions = [cast("RecordSession", one.hearer) for one in host.receivers.values()]
        outlets = [cast("SocketOutlet", one._outlet) for one in sessions]
        waiting = [outlet._socket.waiting_bytes for outlet in outlets]
        assert max(waiting) < 2_000_000, "400 times 50 KB were written"
        stopped.socket.transport.resume_reading()
        await site.equal(slow)
        assert slow.drifts == 0
        assert other.drifts == 0
        records = sum(isinstance(one, Record) for one in slow.heard)
        assert records < 400, "many versions are left out"


async def test_t61_a_half_open_socket_is_found_by_ping(site: Site) -> None:
    node = await site.node(keepalive_ms=300)
    held = Held("things")
    async with client(url_of(node), held, ping_interval=None) as made:
        await site.equal(held)
        host = node.subjects.records.hosts["things"]  # type: ignore[union-attr]
        assert host.receivers
        # It reads no more, and so answers no ping; nothing is closed.
        made.socket.transport.pause_reading()
        await until(lambda: not host.receivers, "it is found")
        made.socket.transport.abort()


async def test_t62_a_server_that_is_killed_in_mid_sync(site: Site, tmp_path: Path) -> None:
    await site.execute(
        "insert into things select n, 1, 'NEW', repeat('x', 1000) from generate_series(1, 20000) n"
    )
    flags = ("--roles=records", f"--catalog={site.dsn}", "--node=first")
    held = Held("things")
    with await asyncio.to_thread(NodeProcess, tmp_path / "first", *flags) as node:
        url = node.http.replace("http", "ws", 1) + "/records"
        async with client(url, held):
            await until(lambda: len(held.rows) > 100, "a part")
            await asyncio.to_thread(node.kill)
    assert not held.ends or len(held.rows) == 20_000
    held.left()
    second = await site.node("second")
    await site.execute(
        "delete from things where id <= 10", "update things set note = 'y' where id = 50"
    )
    async with client(url_of(second), held):
        await site.equal(held)
    assert held.drifts == 0


async def test_t63_connections_to_postgres_are_lost_and_back(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things", where={"workspace_id": 1})
    async with client(url_of(node), held) as made:
        await site.equal(held, "workspace_id = 1")
        for number in range(3):
            await site.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'moorline' and datname = current_database()",
                f"update things set note = '{number}' where id < 100",
            )
            await site.equal(held, "workspace_id = 1")
        assert made.close_code is None
        assert held.drifts == 0


async def test_t64_postgres_restarts_under_load(site: Site, tmp_path: Path) -> None:
    """A Postgres of its own, with writers before, during and behind it: its node has another one as the
    catalog."""
    address = tmp_path / "own.address"
    held = Held("far")
    writes = Counter[bool]()
    is_over = asyncio.Event()

    async def write(dsn: str, writer: int) -> None:
        number = 0
        while not is_over.is_set():
            with contextlib.suppress(*LOST_ERRORS):
                connection = await asyncpg.connect(dsn, timeout=5)
                try:
                    while not is_over.is_set():
                        number += 1
                        await connection.execute(
                            "update far set note = $1 where id = $2",
                            f"{writer} {number}",
                            writer + 4 * (number % 100),
                        )
                        writes[is_back.is_set()] += 1
                finally:
                    connection.terminate()
            await asyncio.sleep(0.05)

    is_back = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        async with EmbeddedPostgres(tmp_path / "own") as own:
            address.write_text(own.dsn)
            connection = await asyncpg.connect(own.dsn)
            there = Site(own.dsn, tmp_path, connection)
            await there.execute(
                "create table far (id bigint primary key, workspace_id integer, state text, note text)"
            )
            await there.register("far")
            await there.execute("insert into far select n, 1, 'NEW' from generate_series(1, 500) n")
            node = await site.node(records={"databases": [f"own={address}"]})
            made = await stack.enter_async_context(client(url_of(node), held))
            await there.equal(held, table="far")
            await connection.close()
            writers = [asyncio.create_task(write(own.dsn, number)) for number in range(1, 5)]
            await until(lambda: writes[False] > 100, "writers at work")
        host = node.subjects.records.hosts["far"]  # type: ignore[union-attr]
        await until(lambda: host.away, "it is noticed")
        async with EmbeddedPostgres(tmp_path / "own") as again:
            assert again.dsn == own.dsn
            is_back.set()
            await until(lambda: writes[True] > 100, "writers at work again")
            is_over.set()
            await asyncio.gather(*writers)
            there.connection = await asyncpg.connect(again.dsn)
            await there.equal(held, table="far")
            assert made.close_code is None, "its link was kept"
            assert held.drifts == 0
            await there.connection.close()
            await site.close()


async def test_t68_a_record_of_a_mebibyte_passes(site: Site) -> None:
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held) as made:
        await site.equal(held)
        await site.execute("insert into things values (1, 1, 'NEW', repeat('x', 1048576))")
        await site.equal(held)
        assert made.close_code is None
    fresh = Held("things")
    async with client(url_of(node), fresh):
        await site.equal(fresh)


async def test_t69_a_column_is_added_while_clients_are_connected(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    all_columns, some = Held("things"), Held("things", columns=["state"])
    async with client(url_of(node), all_columns) as one, client(url_of(node), some) as two:
        await site.equal(all_columns)
        await until(lambda: some.ends, "a sync")
        some.heard.clear()
        await site.execute("alter table things add column extra integer default 7")
        await site.execute("update things set state = 'DONE' where id = 1")
        await site.equal(all_columns)
        assert all(row["extra"] == 7 for _, row in all_columns.rows.values())
        await until(
            lambda: some.rows.get(("1",), (0, {"state": ""}))[1]["state"] == "DONE", "the change"
        )
        assert one.close_code is None
        assert two.close_code is None
        assert sum(isinstance(message, Record) for message in some.heard) < 10, (
            "rows it has are not sent"
        )
        assert "extra" in all_columns.columns


async def test_t17_truncate(site: Site) -> None:
    await site.execute(MANY)
    node = await site.node()
    held = Held("things")
    async with client(url_of(node), held):
        await site.equal(held)
        await site.execute("truncate things", "insert into things values (5, 1, 'NEW', 'n')")
        await site.equal(held)
        assert list(held.rows) == [("5",)]


async def test_a_table_that_is_dropped_ends_its_subscriptions_alone(site: Site) -> None:
    await site.execute(MANY)
    await site.register("others")
    node = await site.node()
    held, other = Held("things"), Held("others")
    async with client(url_of(node), held, other) as made:
        await site.equal(held)
        await site.equal(other, table="others")
        await site.execute("drop table things")
        await until(lambda: held.refused, "a refusal")
        assert held.refused[0].code == "TABLE_GONE"
        await site.execute("insert into others values (1, 1, 'NEW', 'n')")
        await site.equal(other, table="others")
        assert made.close_code is None


async def test_messages_that_are_none_end_the_connection(site: Site) -> None:
    node = await site.node()
    for said in ("{", '[{"type":"subscribe"}]', '[{"type":"nothing"}]', '[{"type":"verify"}]'):
        async with client(url_of(node), is_subscribed=False) as made:
            await made.socket.send(said)
            await ended(made)
            assert made.close_code == 1007


async def test_one_transaction_of_many_rows(site: Site) -> None:
    node = await site.node()
    held, other = Held("things"), Held("things", where={"state": "OLD"})
    async with client(url_of(node), held), client(url_of(node), other):
        await site.equal(held)
        await site.execute(
            "insert into things select n, 1, 'NEW', 'n' from generate_series(1, 50000) n"
        )
        await site.equal(held)
        await site.execute("update things set state = 'OLD' where id % 2 = 0")
        await site.equal(held)
        await site.equal(other, "state = 'OLD'")
        assert held.drifts == 0
        assert other.drifts == 0
