"""A change of rights: who is cut, how long until everybody is back and proven, and at how many bytes.

    python -m bench.record_boots [--quick] [--json]

All clients follow one table, as one of twenty users, each of whom may see the rows of three owners. One of
the users gets another owner. With `records.boot = "all"` everybody is cut, with `"changed"` that user's
clients; both are measured in one run, at a node of their own each. A client is back when the digest of the
rows that it holds is the one that the node told it; bytes are those of both directions of all clients,
their handshakes among them, from the grant until the last one is back.

This is a part of `bench.records`; alone it has a program, since it takes some minutes.
"""

import asyncio
import contextlib
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import asyncpg

import moorline
from bench.node import BenchNode
from bench.record_clients import FAN_ROWS, RETURN_S, WAIT_S, WORKERS, make_table, served
from bench.record_copies import Copies
from bench.report import Report, run_bench, tell
from bench.worker import Worker
from moorline.catalog import EmbeddedPostgres

CLIENTS = 10_000
CLIENTS_QUICK = 200
USERS = 20


class Booted(NamedTuple):
    cut: int
    bytes: int
    half_back_s: float
    all_back_s: float


async def run(report: Report, folder: Path, quick: bool) -> None:
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await make_table(connection, "fans", FAN_ROWS)
        await connection.close()
        await boots(report, folder, postgres, CLIENTS_QUICK if quick else CLIENTS)


async def boots(report: Report, folder: Path, postgres: EmbeddedPostgres, clients: int) -> None:
    found: dict[str, Booted] = {}
    for boot in ("all", "changed"):
        async with served(folder, f"boot-{boot}", postgres, f"--set=records.boot={boot}") as node:
            found[boot] = await booted(node, clients, boot)
        tell(f"boot={boot}: {found[boot]}")
    every = found["all"]
    for boot, one in found.items():
        report.row(f"boot={boot} {clients}", "clients_cut", one.cut, "clients")
    for metric, unit in (("half_back_s", "s"), ("all_back_s", "s"), ("bytes", "B")):
        report.row(
            f"boot=changed {clients}",
            metric,
            getattr(found["changed"], metric),
            unit,
            peer="boot=all",
            peer_value=getattr(every, metric),
        )


async def booted(node: BenchNode, clients: int, boot: str) -> Booted:
    port = int(node.http_address.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(Copies)) for _ in range(WORKERS)]
        async with moorline.connect(node.address) as operator:
            tokens = [await _user(operator, f"{boot}-{number}") for number in range(USERS)]
            share = clients // WORKERS
            given = [tokens[number % USERS] for number in range(share)]
            await asyncio.gather(*(one.ask("open", port, given, RETURN_S) for one in workers))
            tell(f"boot={boot}: {WORKERS * share:,} clients are there")
            wanted = WORKERS * (share if boot == "all" else given.count(tokens[0]))
            cuts_before, bytes_before = await _sums(workers)
            started_s = time.monotonic()
            await operator.access.add_grant("/records/fans/9", f"{boot}-0", "s")
            cut = 0
            async with asyncio.timeout(WAIT_S):
                while cut < wanted:
                    await asyncio.sleep(0.1)
                    cut = (await _sums(workers))[0] - cuts_before
            backs = await asyncio.gather(*(one.ask("all_back") for one in workers))
            cut, bytes_ = await _sums(workers)
            # Who was not cut was proven before.
            back_s = [one_s - started_s for part in backs for one_s in part if one_s > started_s]
            return Booted(
                cut - cuts_before, bytes_ - bytes_before, statistics.median(back_s), max(back_s)
            )


async def _sums(workers: list[Worker]) -> tuple[int, int]:
    found = await asyncio.gather(*(one.ask("sums") for one in workers))
    return sum(cuts for cuts, _ in found), sum(bytes_ for _, bytes_ in found)


async def _user(operator: moorline.Moor, name: str) -> str:
    await operator.access.add_user(name)
    for owner in (1, 2, 3):
        await operator.access.add_grant(f"/records/fans/{owner}", name, "s")
    return (await operator.access.add_token(name, "bench")).token


if __name__ == "__main__":
    run_bench("record_boots", __doc__, run)
