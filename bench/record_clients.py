"""What clients of records see: how soon, how many at once, what a return costs."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg

import moorline
from bench.node import BenchNode
from bench.record_sockets import Sockets
from bench.report import Report, tell
from bench.worker import Worker
from moorline.catalog import EmbeddedPostgres
from moorline.client.records.table import RecordTable
from moorline.limits import RECORD_CLIENT_RETURN_MS
from moorline.records.registration import Wanted, add

WORKERS = 4
FAN_ROWS = 200
BURST = 50
RETURN_S = RECORD_CLIENT_RETURN_MS / 1_000
"""Who is cut returns within this, by chance, as our clients do."""
SOON = moorline.RecordSettings(return_ms=1)
WAIT_S = 300


@contextlib.asynccontextmanager
async def served(
    folder: Path, name: str, postgres: EmbeddedPostgres, *flags: str
) -> AsyncIterator[BenchNode]:
    node = BenchNode(
        folder / name,
        [
            f"--catalog={postgres.dsn}",
            f"--node={name}",
            "--roles=records",
            "--http=127.0.0.1:0",
            *flags,
        ],
    )
    with node:
        yield node


async def make_table(connection: asyncpg.Connection, table: str, rows: int) -> None:
    await connection.execute(
        f"create table {table} (id bigint primary key, workspace_id integer, state text, note text);"
        f"insert into {table} select 3 * n, n % 100, 'new', 'a note' from generate_series(1, {rows}) n"
    )
    wanted = Wanted(table, ("id",), owner="workspace_id", filters=("workspace_id", "state"))
    await add(connection, wanted)


# --- how soon -------------------------------------------------------------------------------------


async def latency(
    report: Report, node: BenchNode, connection: asyncpg.Connection, changes: int
) -> None:
    """From before the statement, which is a commit, to the library's client; one at a time."""
    await make_table(connection, "latencies", 10_000)
    found_ms: list[float] = []
    async with moorline.connect(node.address) as moor, moor.records("latencies") as table:
        heard = table.changes()
        for number in range(changes):
            started_s = time.perf_counter()
            await connection.execute(
                "update latencies set note = $1 where id = $2",
                f"note {number}",
                3 + 3 * number % 9_000,
            )
            async for change in heard:
                if change.row is not None and change.row["note"] == f"note {number}":
                    break
            found_ms.append((time.perf_counter() - started_s) * 1_000)
            # The feed has its pauses: changes come at any moment of them.
            await asyncio.sleep(0.001 * (number * 7 % 30))
    cuts = statistics.quantiles(found_ms, n=100)
    report.row("change to client", "p50_ms", cuts[49], "ms")
    report.row("change to client", "p99_ms", cuts[98], "ms")


# --- how many -------------------------------------------------------------------------------------


async def fan_out(
    report: Report, node: BenchNode, connection: asyncpg.Connection, clients: int, changes: int
) -> None:
    """All follow the same rows; timed is from before the commit to the last one of them."""
    port = int(node.http_address.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(Sockets)) for _ in range(WORKERS)]
        share = clients // WORKERS
        await asyncio.gather(
            *(one.ask("open", port, [{}] * share, [""] * share, RETURN_S) for one in workers)
        )
        tell(f"fan-out: {clients:,} clients are there")
        halves_ms, lasts_ms = [], []
        for number in range(changes):
            word = f"change {clients} {number};"
            saw, started_s = await _seen(workers, connection, word, [1])
            halves_ms.append((statistics.median(saw) - started_s) * 1_000)
            lasts_ms.append((max(saw) - started_s) * 1_000)
        # In one transaction, and the last row has the word.
        saw, started_s = await _seen(workers, connection, f"burst {clients};", range(1, BURST + 1))
        case = f"fan-out {clients}"
        report.row(case, "median_client_ms", statistics.median(halves_ms), "ms")
        report.row(case, "last_client_ms", statistics.median(lasts_ms), "ms")
        report.row(case, "records_per_s", BURST * clients / (max(saw) - started_s), "1/s")


async def _seen(
    workers: list[Worker], connection: asyncpg.Connection, word: str, keys: "range | list[int]"
) -> tuple[list[float], float]:
    """When each client has seen the last of these rows; and when they were written."""
    await asyncio.gather(*(one.ask("look_for", f"last {word}") for one in workers))
    started_s = time.monotonic()
    await connection.execute(
        "update fans set note = case when id = $2 then 'last ' else '' end || $3::text where id = any($1)",
        [3 * key for key in keys],
        3 * max(keys),
        word,
    )
    found = await asyncio.gather(*(one.ask("saw") for one in workers))
    return [saw_s for part in found for saw_s in part], started_s


# --- a return -------------------------------------------------------------------------------------


class Meter:
    """A way to a node that counts bytes, and that can be shut."""

    def __init__(self, target: int) -> None:
        self.bytes = 0
        self.is_shut = False
        self.port = 0
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Meter"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.shut()

    def shut(self) -> None:
        self.is_shut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_shut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        mine = {writer, far_writer}
        self._writers |= mine
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        self._writers -= mine

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 18):
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
        finally:
            writer.transport.abort()


async def reconnects(
    report: Report, node: BenchNode, connection: asyncpg.Connection, rows: int
) -> None:
    """A copy of all rows is cut, some are updated, it returns: bytes both ways, less a link's own."""
    await make_table(connection, "returns", rows)
    target = int(node.address.rpartition(":")[2])
    async with Meter(target).open() as meter:
        address = f"tcp://127.0.0.1:{meter.port}"
        async with moorline.connect(address) as moor:
            # Of the handshake alone: a copy says no more before it subscribes.
            link_bytes = meter.bytes
            started_s = time.perf_counter()
            async with moor.records("returns", settings=SOON) as table:
                first_s = time.perf_counter() - started_s
                report.row(f"first sync n={rows}", "rows_per_s", rows / first_s, "1/s")
                report.row(f"first sync n={rows}", "bytes", meter.bytes - link_bytes, "B")
                ids_bytes = len(",".join(str(key) for key in table.rows)) + 2
                for how in ("replay", "digest"):
                    for changed in (0, 10, 1_000):
                        found = await _returned(meter, table, connection, how, changed)
                        case = f"reconnect n={rows} d={changed}"
                        case += "" if how == "replay" else " by digest"
                        sent = max(1, found[0] - link_bytes)
                        report.row(
                            case, "bytes", sent, "B", peer="list of ids", peer_value=ids_bytes
                        )
                        report.row(case, "synced_s", found[1], "s")


async def _returned(
    meter: Meter, table: RecordTable, connection: asyncpg.Connection, how: str, changed: int
) -> tuple[int, float]:
    heard = table.changes()
    meter.shut()
    async for change in heard:
        if change.kind is moorline.ChangeKind.DISCONNECTED:
            break
    if changed:
        await connection.execute(
            "update returns set note = note || '.' where id in "
            f"(select 3 * (1 + (n * 7919) % $1) from generate_series(1, {changed}) n)",
            len(table.rows),
        )
    if how == "digest":
        # As one whose cursor is older than the log, or of another permit.
        table._copy.copy.cursor = ""  # noqa: SLF001
    meter.bytes = 0
    meter.is_shut = False
    started_s = time.perf_counter()
    async with asyncio.timeout(WAIT_S):
        async for change in heard:
            if change.kind is moorline.ChangeKind.SYNCED:
                if change.how != how and changed:
                    raise RuntimeError(f"it was to come back by {how}, and did by {change.how}")
                break
    taken_s = time.perf_counter() - started_s
    heard.close()
    return meter.bytes, taken_s
