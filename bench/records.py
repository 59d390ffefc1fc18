"""Records: what captures cost whoever writes, and what clients see.

    python -m bench.records [--quick] [--json]

Commits of 32 writers a second: three tables alike in one Postgres, with fsync: without a capture, with `log`,
with `notify`. pgbench writes to each of them in turn, one row a transaction, round by round: a machine with
other work slows all three down. Told is the median of the rounds, with `none` as the peer. Nobody reads
meanwhile; a reader of `log` costs its own statements only.

Clients: a node in its own process, many connections in four others, and Postgres, all on one machine
(`record_clients.py`); a change of rights by itself is `record_boots.py`.
"""

import asyncio
import os
import re
import statistics
from pathlib import Path
from typing import NamedTuple

import asyncpg

from bench.record_boots import boots
from bench.record_clients import FAN_ROWS, fan_out, latency, make_table, reconnects, served
from bench.report import Report, run_bench, tell
from moorline.catalog import EmbeddedPostgres
from moorline.catalog.datafolder import binaries
from moorline.records.registration import Wanted, add

WRITERS = 32
KEYS = 100_000
CAPTURES = ("none", "log", "notify")
SCRIPTS = {
    "inserts": "insert into {table} (workspace_id, state, note) values ({scope}, 'new', 'a note of "
    "some length');",
    "updates": "update {table} set state = 'run', note = 'note ' || random() where id = {key};",
}


class Plan(NamedTuple):
    rounds: int
    seconds: int
    changes: int
    fans: tuple[int, ...]
    fan_changes: int
    booted: int
    known: int


FULL = Plan(7, 6, 1_000, (1_000, 10_000), 20, 10_000, 1_000_000)
QUICK = Plan(1, 1, 150, (200,), 5, 200, 20_000)


async def run(report: Report, folder: Path, quick: bool) -> None:
    plan = QUICK if quick else FULL
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        await _captures(report, folder, postgres.dsn, plan)
    async with EmbeddedPostgres(folder / "clients") as postgres:
        await _clients(report, folder, postgres, plan)


async def _captures(report: Report, folder: Path, dsn: str, plan: Plan) -> None:
    await _make_tables(dsn)
    host = dsn.split("host=")[1].split("&")[0]
    for kind, script in SCRIPTS.items():
        found: dict[str, list[float]] = {capture: [] for capture in CAPTURES}
        for number in range(plan.rounds):
            for capture in CAPTURES:
                commits = await _commits_per_s(folder, host, script, capture, plan.seconds)
                found[capture].append(commits)
                tell(
                    f"{kind} round {number + 1}, capture={capture}: {commits:,.0f} commits a second"
                )
        _report(report, kind, found)


async def _clients(report: Report, folder: Path, postgres: EmbeddedPostgres, plan: Plan) -> None:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        async with served(folder, "node", postgres) as node:
            await latency(report, node, connection, plan.changes)
            await make_table(connection, "fans", FAN_ROWS)
            for clients in plan.fans:
                await fan_out(report, node, connection, clients, plan.fan_changes)
            await reconnects(report, node, connection, plan.known)
        await boots(report, folder, postgres, plan.booted)
    finally:
        await connection.close()


def _report(report: Report, kind: str, found: dict[str, list[float]]) -> None:
    medians = {capture: statistics.median(values) for capture, values in found.items()}
    for capture in CAPTURES[1:]:
        # Inserts are what the target is of; updates write a line of the log each.
        case = f"capture={capture}" if kind == "inserts" else f"capture={capture} {kind}"
        report.row(
            case,
            "commits_per_s",
            medians[capture],
            "1/s",
            peer="capture=none",
            peer_value=medians["none"],
        )


async def _make_tables(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for capture in CAPTURES:
            table = f"bench_{capture}"
            await connection.execute(
                f"create table {table} (id bigserial primary key, workspace_id integer, state text, "
                f"note text);"
                f"insert into {table} (workspace_id, state, note)"
                f" select i % 100, 'new', 'a note' from generate_series(1, {KEYS}) i"
            )
            if capture != "none":
                # A log that does not end while it is measured.
                await add(
                    connection,
                    Wanted(
                        table,
                        ("id",),
                        owner="workspace_id",
                        filters=("state",),
                        capture="log" if capture == "log" else "notify",
                        log_rows_max=100_000_000,
                    ),
                )
        await connection.execute("vacuum analyze")
    finally:
        await connection.close()


async def _commits_per_s(folder: Path, host: str, script: str, capture: str, seconds: int) -> float:
    file = folder / "script.sql"
    text = script.format(table=f"bench_{capture}", scope=":scope", key=":key")
    file.write_text(f"\\set scope random(1, 100)\n\\set key random(1, {KEYS})\n{text}\n")
    process = await asyncio.create_subprocess_exec(
        str(binaries() / "pgbench"),
        *(
            "--no-vacuum",
            "--protocol=prepared",
            f"--client={WRITERS}",
            "--jobs=2",
            f"--time={seconds}",
        ),
        *(f"--file={file}", f"--host={host}", "--username=postgres", "postgres"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"LC_ALL": "C"},
    )
    out, err = await process.communicate()
    match = re.search(rb"tps = ([0-9.]+) \(without", out)
    if process.returncode != 0 or match is None:
        raise RuntimeError(f"pgbench failed: {err.decode()[-500:]}")
    return float(match[1])


if __name__ == "__main__":
    run_bench("records", __doc__, run)
