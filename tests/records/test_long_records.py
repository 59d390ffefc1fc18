"""What is too long for every run, at the size that its scenario names. Each has a shorter sister."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from bench.node import BenchNode
from bench.record_boots import USERS, booted
from bench.record_clients import Meter, make_table
from tests.catalog.databases import new_database
from tests.records.clients import Held, RecordClient, client
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.records.changes import Changes, RecordChange
from moorline.client.records.table import RecordTable
from moorline.limits import WEBSOCKET_BUFFER_BYTES_MAX

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

MILLION = 1_000_000
BOOTED = 10_000
PATIENCE_S = 300


@pytest.fixture
async def dsn(postgres: EmbeddedPostgres) -> str:
    return await new_database(postgres)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def node(dsn: str, tmp_path: Path) -> Iterator[BenchNode]:
    flags = [f"--catalog={dsn}", "--node=long", "--roles=records", "--http=127.0.0.1:0"]
    with BenchNode(tmp_path / "node", flags) as node:
        yield node


def memory_bytes(node: BenchNode) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{node.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def url_of(node: BenchNode) -> str:
    return f"ws{node.http_address.removeprefix('http')}/records"


async def wanted(connection: asyncpg.Connection, table: str) -> dict[str, int]:
    rows = await connection.fetch(f"select id::text, moor_seq from {table}")
    return {row["id"]: row["moor_seq"] for row in rows}


async def equal(connection: asyncpg.Connection, table: RecordTable) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            there = await wanted(connection, "things")
            rows = table.rows
            if table.is_synced and {str(key): rows.seq(key) for key in rows} == there:
                return
            await asyncio.sleep(0.5)


async def next_of(changes: Changes, kind: moorline.ChangeKind) -> RecordChange:
    async with asyncio.timeout(PATIENCE_S):
        async for change in changes:
            if change.kind is kind:
                return change
    raise AssertionError("the changes have ended")


async def test_t41_differences_of_a_million(
    node: BenchNode, connection: asyncpg.Connection
) -> None:
    await make_table(connection, "things", MILLION)
    async with (
        Meter(int(node.address.rpartition(":")[2])).open() as meter,
        moorline.connect(f"tcp://127.0.0.1:{meter.port}") as moor,
        moor.records("things", settings=moorline.RecordSettings(return_ms=1)) as table,
    ):
        first_bytes = meter.bytes
        changes = table.changes()
        for count in (1, 10, 200, 10_000, MILLION):
            meter.shut()
            await next_of(changes, moorline.ChangeKind.DISCONNECTED)
            # As one whose cursor is older than the log: its digest alone says what it has.
            table._copy.copy.cursor = ""
            await connection.execute(
                "update things set note = note || '.' where id in "
                "(select 3 * (1 + (n * 7919::bigint) % 1000000) from generate_series(1, $1) n)",
                count,
            )
            meter.bytes, meter.is_shut = 0, False
            synced = await next_of(changes, moorline.ChangeKind.SYNCED)
            assert synced.how == "digest" if count < MILLION else synced.how in ("digest", "full")
            await equal(connection, table)
            if count <= 200:
                assert meter.bytes < 8 * MILLION / 20, "a list of all would be eight bytes a row"
            else:
                assert meter.bytes < 1.5 * first_bytes
        changes.close()


async def test_t7_a_million_rows_in_one_transaction(
    node: BenchNode, connection: asyncpg.Connection
) -> None:
    """Other tables go on, and the node's memory has a bound that has nothing to do with the rows."""
    await make_table(connection, "things", MILLION)
    await make_table(connection, "marks", 10)
    async with (
        moorline.connect(node.address) as moor,
        moor.records("things", where={"workspace_id": 7}) as few,
        moor.records("things") as table,
        moor.records("marks") as marks,
    ):
        before = memory_bytes(node)
        heard = marks.changes()
        await connection.execute("update things set state = 'run'")
        await connection.execute("update marks set note = 'later' where id = 3")
        await next_of(heard, moorline.ChangeKind.RECORD)
        await equal(connection, table)
        assert {few.rows[key]["state"] for key in few.rows} == {"run"}
        assert memory_bytes(node) - before < 300 << 20
        heard.close()


@pytest.mark.parametrize("boot", ["all", "changed"])
async def test_t56_ten_thousand_are_booted(dsn: str, tmp_path: Path, boot: str) -> None:
    """Those whose rights change are cut, or all, and all come back and are proven."""
    connection = await asyncpg.connect(dsn)
    await make_table(connection, "fans", 200)
    await connection.close()
    flags = [f"--catalog={dsn}", "--node=boots", "--roles=records", "--http=127.0.0.1:0"]
    with BenchNode(tmp_path / "boots", [*flags, f"--set=records.boot={boot}"]) as node:
        found = await booted(node, BOOTED, boot)
    assert found.cut == (BOOTED if boot == "all" else BOOTED // USERS)


async def test_t60_a_reader_stops_for_a_minute_under_load(
    node: BenchNode, connection: asyncpg.Connection
) -> None:
    await make_table(connection, "things", 100)
    slow, other = Held("things"), Held("things")
    async with client(url_of(node), other) as reading, client(url_of(node), slow) as made:
        await until(lambda: slow.ends and other.ends, "first syncs")
        before = memory_bytes(node)
        made.socket.transport.pause_reading()
        number = 0
        # Until the node has cut it, which it does behind a minute.
        while not _is_cut(made, node):
            number += 1
            await connection.execute(
                "update things set note = $1 where id = $2",
                f"{number} {'x' * 20_000}",
                3 + 3 * (number % 100),
            )
            assert memory_bytes(node) - before < 4 * WEBSOCKET_BUFFER_BYTES_MAX
        assert reading.close_code is None
        made.socket.transport.resume_reading()
        await until(lambda: made.close_code is not None, "it hears of its end")
    slow.left()
    async with client(url_of(node), slow):
        there = await wanted(connection, "things")
        await until(
            lambda: slow.ends and {key[0]: seq for key, (seq, _) in slow.rows.items()} == there,
            "it is synced again",
        )
    assert (slow.drifts, other.drifts) == (0, 0)


def _is_cut(made: RecordClient, node: BenchNode) -> bool:
    """By the descriptors of the node: a client that does not read hears nothing."""
    mine = made.socket.transport.get_extra_info("sockname")[1]
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    port = int(node.http_address.rpartition(":")[2])
    for row in rows:
        fields = row.split()
        near, far = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
        if (near, far) == (port, mine):
            return fields[3] != "01"
    return True
