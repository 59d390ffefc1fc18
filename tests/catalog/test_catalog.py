"""The catalog on a real Postgres, and all the ways in which one cannot be reached."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from tests.catalog.nodes import pretend
from tests.waiting import until

from moorline.catalog import Catalog, EmbeddedPostgres, NodeRow, catalog
from moorline.catalog.migration import MIGRATIONS
from moorline.errors import CatalogTooNew, CatalogUnreachable

pytestmark = pytest.mark.process

SECRET = "pa%2Fss-Xyzzy"
PLAIN_SECRET = "pa/ss-Xyzzy"


async def refusal(dsn: str) -> str:
    """What opening it says; one line, and no secret in it."""
    with pytest.raises(CatalogUnreachable) as caught:
        async with Catalog.open(dsn):
            pass
    text = str(caught.value)
    assert "\n" not in text
    error: BaseException | None = caught.value
    while error is not None:
        assert "Xyzzy" not in str(error)
        error = error.__cause__
    return text


@pytest.fixture
async def guarded(dsn: str, postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The database's address as a user who needs a password, without one."""
    rules = postgres.folder / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all guarded scram-sha-256\n" + before)
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"create role guarded login password '{PLAIN_SECRET}'")
    loaded = await connection.fetchval("select pg_conf_load_time()")
    await connection.execute("select pg_reload_conf()")
    await until(lambda: connection.fetchval("select pg_conf_load_time() > $1", loaded))
    yield dsn.replace("postgres@", "guarded:PASSWORD@")
    await connection.execute("drop role guarded")
    rules.write_text(before)
    await connection.execute("select pg_reload_conf()")
    await connection.close()


async def test_open_migrates_and_knows_its_version(dsn: str) -> None:
    async with Catalog.open(dsn) as opened:
        assert await opened.version() == MIGRATIONS[-1].number
        assert await opened.nodes() == []


async def test_a_connection_is_given_back_without_a_round_trip(dsn: str) -> None:
    async with Catalog.open(dsn) as found:
        await pretend(found, "node-1")
        watching = await asyncpg.connect(dsn)
        try:
            last = await watching.fetch(
                "select query from pg_stat_activity "
                "where datname = current_database() and application_name = 'moorline'"
            )
        finally:
            await watching.close()
    assert last
    assert not [one["query"] for one in last if "UNLISTEN" in one["query"]]


async def test_many_open_at_once(dsn: str) -> None:
    async def version() -> int:
        async with Catalog.open(dsn) as opened:
            return await opened.version()

    assert await asyncio.gather(*(version() for _ in range(8))) == [MIGRATIONS[-1].number] * 8


async def test_nodes_are_registered_and_seen(dsn: str) -> None:
    before = datetime.now(UTC)
    async with Catalog.open(dsn) as opened:
        for name in ("beta", "alpha"):
            identities = await pretend(
                opened, name, roles=["broker", "resolver"], addresses=["tcp://10.0.0.1:7000"]
            )
        first, second = await opened.nodes()
        assert (first.name, second.name) == ("alpha", "beta")
        assert before <= first.started_at <= first.seen_at
        assert first == NodeRow(
            home="alpha",
            name="alpha",
            id=b"alpha",
            roles=["broker", "resolver"],
            addresses=["tcp://10.0.0.1:7000"],
            http=None,
            version="0.1.0",
            started_at=first.started_at,
            seen_at=first.seen_at,
        )
        assert await identities.renew(1_000, is_serving=True)
        seen = (await opened.nodes())[0]
        assert seen.seen_at > first.seen_at
        assert seen.started_at == first.started_at


async def test_node_that_starts_again_replaces_its_row(dsn: str) -> None:
    async with Catalog.open(dsn) as opened:
        for http in ("http://a:1", "http://a:2"):
            await pretend(opened, "alpha", http=http)
        (row,) = await opened.nodes()
        assert row.http == "http://a:2"


async def test_newer_catalog_is_refused_at_open(dsn: str) -> None:
    async with Catalog.open(dsn) as opened:
        await opened._pool.execute("insert into migration values (99, 'later', 'x', now())")
    with pytest.raises(CatalogTooNew, match="version 99"):
        async with Catalog.open(dsn):
            pass


async def test_postgres_that_dies_under_an_open_catalog(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as postgres, Catalog.open(postgres.dsn) as opened:
        os.kill(postgres.pid, signal.SIGKILL)
        await postgres.died()

        async def is_noticed() -> bool:
            # A process of Postgres that serves a client may outlive the first one by a moment.
            try:
                await opened.nodes()
            except CatalogUnreachable:
                return True
            return False

        await until(is_noticed)


async def test_close_does_not_wait_for_a_statement_that_hangs(dsn: str) -> None:
    async with Catalog.open(dsn) as opened:
        hanging = asyncio.create_task(opened._pool.execute("select pg_sleep(600)"))
        watcher = await asyncpg.connect(dsn)
        sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
        await until(lambda: watcher.fetchval(sleeping))
        await watcher.close()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await hanging


async def test_right_and_wrong_password(guarded: str) -> None:
    owner = guarded.replace("guarded:PASSWORD", "postgres")
    async with Catalog.open(owner):
        pass
    wrong = guarded.replace("PASSWORD", "wrong-Xyzzy")
    assert 'password authentication failed for user "guarded"' in await refusal(wrong)
    # The right one gets in, and is then told that the schema is not its own.
    right = guarded.replace("PASSWORD", SECRET)
    assert "the user must own the schema moorline" in await refusal(right)


async def test_unknown_database(dsn: str) -> None:
    address = dsn.replace("postgres@", f"postgres:{SECRET}@").replace("/test_", "/missing_")
    text = await refusal(address)
    assert "does not know the database" in text
    assert "create it" in text


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        text = await refusal(f"postgresql://moor:{SECRET}@127.0.0.1:{port}/moorline")
    assert f"the catalog postgresql://moor@127.0.0.1:{port}/moorline cannot be reached" in text


async def test_no_socket_in_the_folder(tmp_path: Path) -> None:
    text = await refusal(f"postgresql://moor:{SECRET}@/moorline?host={tmp_path}")
    assert str(tmp_path) in text
    assert "cannot be reached" in text


async def test_unknown_host() -> None:
    text = await refusal(f"postgresql://moor:{SECRET}@nowhere.invalid/moorline")
    assert "nowhere.invalid" in text


async def test_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CATALOG_CONNECT_MS_MAX", 100)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = await refusal(f"postgresql://moor:{SECRET}@127.0.0.1:{port}/moorline")
    assert "did not answer in time" in text


async def test_server_that_is_no_postgres() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await refusal(f"postgresql://moor:{SECRET}@127.0.0.1:{port}/moorline")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/var/lib/postgresql",
        "mysql://moor:Xyzzy@host/moorline",
        "host=db password=Xyzzy",
        "postgresql://moor:pa/Xyzzy@host/moorline",
        "postgresql://moor:pa#Xyzzy@host/moorline",
        "postgresql://moor:pa?Xyzzy@host/moorline",
        "postgresql://moor:pa[Xyzzy@host/moorline",
        "postgresql://moor:Xyzzy",
        "postgresql://moor:Xyzzy/moorline",
        "postgresql://moor:Xyzzy@host:port/moorline",
        "postgresql://moor@127.0.0.1:1/moorline?password=Xyzzy",
        "postgresql://moor:Xyzzy@127.0.0.1:1/moorline?sslmode=nonsense",
        "postgresql://moor:Xyzzy@127.0.0.1:99999/moorline",
        "postgresql://moor:@Xyzzy@127.0.0.1:1/moorline",
    ],
)
async def test_odd_addresses_never_show_the_password(address: str) -> None:
    assert await refusal(address)
