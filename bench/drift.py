"""What it costs to find and repair drift: bytes, round trips and CPU, for sets of several sizes.

    python -m bench.drift [--quick] [--json]

A real node with its Postgres holds the associations of one service; a client whose own list differs by d
ids asks until it knows the difference. Not counted: the opening of the session, and the repair itself, which
is 24 bytes for each id to be associated again whatever the method. "one": the node lacks d ids; "two": d/2
are only here and d/2 only there. Bytes are those of the protocol in both directions, framing included.
"""

import argparse
import os
import secrets
import tempfile
import time
from pathlib import Path

import asyncpg
import numpy as np
import trustme
import uvloop

import moorline
from bench.node import BenchNode, cpu_seconds
from bench.report import Report
from bench.traffic import Traffic
from moorline.client.connecting import Connecting
from moorline.client.service import Service
from moorline.core.sets.asker import Agreed, Repair
from moorline.core.sets.hashing import hash_ids
from moorline.core.sets.id_set import IdSet
from moorline.core.sets.sketch import Words
from moorline.net.reconcile import Comparison

NEGENTROPY = {10: 20_514, 1_000: 1_434_277}
"""Bytes of the best peer for a million ids, measured apart on the same kind of machine (one-sided)."""


class Certificates:
    """A certificate authority, a node and a service."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca, self.node, self.service = (
            folder / "ca.pem",
            folder / "node.pem",
            folder / "service.pem",
        )
        authority.cert_pem.write_to_path(str(self.ca))
        node = authority.issue_cert("127.0.0.1")
        node.private_key_and_cert_chain_pem.write_to_path(str(self.node))
        service = authority.issue_cert("bench@example.org", common_name="bench")
        service.private_key_and_cert_chain_pem.write_to_path(str(self.service))

    def flags(self) -> list[str]:
        return [
            "--listen=tls://127.0.0.1:0",
            f"--tls-certificate={self.node}",
            f"--tls-key={self.node}",
            f"--tls-client-ca={self.ca}",
        ]


async def open_service(service: Service) -> None:
    """What every session of a service begins with; it tells the node's digest."""
    await service._exchange.open()  # noqa: SLF001


async def find(service: Service, own: IdSet) -> tuple[int, Repair | Agreed]:
    """Asks until the difference is known; the number of exchanges, and what is to be repaired."""
    exchange = service._exchange  # noqa: SLF001
    before = exchange.report.rounds
    comparison = Comparison("bench", exchange, own, exchange.salt, exchange.theirs)
    found = await comparison.begin()
    return exchange.report.rounds - before, found


def drifted(base: Words, fresh: Words, d: int, side: str) -> IdSet:
    """The client's set: the node's, with d differences."""
    if side == "one":
        both = np.concatenate([base, fresh[:d]])
    else:
        both = np.concatenate([base[d // 2 :], fresh[: d - d // 2]])
    return IdSet(both[:, 0].copy(), both[:, 1].copy())


async def fill(node: BenchNode, ids: list[bytes], hashes: Words) -> float:
    """Associates ids by the catalog's own function, ten thousand a statement; seconds."""
    catalog = await asyncpg.connect(
        host=str(node.data / "run"), user="postgres", database="postgres"
    )
    number = await catalog.fetchval("select number from moorline.service")
    started = time.perf_counter()
    for start in range(0, len(ids), 10_000):
        part = hashes[start : start + 10_000].view(np.int64)
        await catalog.fetchval(
            "select cardinality(moorline.associate($1, $2, $3, $4))",
            number,
            ids[start : start + 10_000],
            part[:, 0].tolist(),
            part[:, 1].tolist(),
            timeout=600,
        )
    took = time.perf_counter() - started
    await catalog.execute("vacuum analyze moorline.association", timeout=600)
    await catalog.close()
    return took


async def measure_drift(
    node: BenchNode, certificates: Certificates, n: int, ds: list[int], report: Report
) -> None:
    ids = [os.urandom(24) for _ in range(n)]
    base, fresh = hash_ids(ids), hash_ids([os.urandom(24) for _ in range(n)])
    async with connect(node, certificates) as moor:
        service = moor.service(":memory:")
        await open_service(service)
        took = await fill(node, ids, base)
        report.row(f"n={n}", "bulk_associations_per_s", n / took, "1/s")
        traffic = Traffic(moor._caller)  # noqa: SLF001 - a benchmark looks inside
        # The first drift after a start scans for the sketch; that cost has a row of its own.
        cases = [(False, 1, "one"), *((True, d, side) for d in ds for side in ("one", "two"))]
        for warm, d, side in [*cases, (True, n, "two")]:
            own = drifted(base, fresh, d, side)
            await open_service(service)
            traffic.bytes = 0
            server, client, started = (
                cpu_seconds(node.pid),
                time.process_time(),
                time.perf_counter(),
            )
            rounds, effect = await find(service, own)
            wall = time.perf_counter() - started
            server, client = cpu_seconds(node.pid) - server, time.process_time() - client
            found = 0
            if isinstance(effect, Repair):
                found = len(effect.missing) + len(effect.extra)
            assert found == d, (found, d, side)
            case = f"n={n} d={d} {side}" if warm else f"n={n} first drift"
            peer = NEGENTROPY.get(d) if n == 1_000_000 and side == "one" and warm else None
            if peer:
                report.row(
                    case, "bytes", traffic.bytes, "B", peer="negentropy (apart)", peer_value=peer
                )
            else:
                report.row(case, "bytes", traffic.bytes, "B")
            report.row(case, "rounds", rounds, "rounds")
            report.row(case, "server_cpu_s", server, "cpu_s")
            report.row(case, "client_cpu_s", client, "cpu_s")
            report.row(case, "wall_s", wall, "s")


async def measure_all_lost(
    node: BenchNode, certificates: Certificates, n: int, report: Report
) -> None:
    """The node has nothing: one exchange says so."""
    hashes = hash_ids([os.urandom(24) for _ in range(n)])
    async with connect(node, certificates) as moor:
        service = moor.service(":memory:")
        await open_service(service)
        traffic = Traffic(moor._caller)  # noqa: SLF001 - a benchmark looks inside
        own = IdSet(hashes[:, 0].copy(), hashes[:, 1].copy())
        rounds, effect = await find(service, own)
        assert isinstance(effect, Repair)
        assert len(effect.missing) == n
        report.row(f"n={n} d=n one", "bytes", traffic.bytes, "B")
        report.row(f"n={n} d=n one", "rounds", rounds, "rounds")


async def measure_service(
    node: BenchNode, certificates: Certificates, count: int, folder: Path, report: Report
) -> None:
    """Through the front door: queues made, associated one by one and in bulk, subscribed to."""
    async with connect(node, certificates) as moor:
        queues = [
            queue.id for _ in range(count // 1_000) for queue in await moor.create_queues(1_000)
        ]
        async with moor.service(folder / f"{secrets.token_hex(4)}.sqlite") as service:
            started = time.perf_counter()
            for queue in queues[:200]:
                await service.associate([queue])
            report.row(
                "service", "single_associations_per_s", 200 / (time.perf_counter() - started), "1/s"
            )
            started = time.perf_counter()
            await service.associate(queues[200:])
            rate = (count - 200) / (time.perf_counter() - started)
            report.row("service", "bulk_associations_per_s", rate, "1/s")


async def measure_subscribe(
    node: BenchNode, certificates: Certificates, n: int, report: Report
) -> None:
    """SUBS to ALLS with nothing waiting: every page of the associations is looked at."""
    async with connect(node, certificates) as moor:
        service = moor.service(":memory:")
        await open_service(service)
        started = time.perf_counter()
        await find(service, IdSet(np.empty(0, np.uint64), np.empty(0, np.uint64)))
        await service.all_delivered.wait()
        report.row(f"SUBS to ALLS n={n}", "wall_s", time.perf_counter() - started, "s")


def connect(node: BenchNode, certificates: Certificates) -> Connecting:
    return moorline.connect(
        node.tls_address,
        ca=certificates.ca,
        certificate=certificates.service,
        key=certificates.service,
        timeout_ms=30_000,
    )


async def run(quick: bool, report: Report) -> None:
    sizes = [10_000, 100_000] if quick else [10_000, 100_000, 1_000_000]
    for n in sizes:
        with tempfile.TemporaryDirectory(prefix="moorline-bench-") as name:
            folder = Path(name)
            certificates = Certificates(folder)
            with BenchNode(folder, certificates.flags()) as node:
                if n == sizes[0]:
                    await measure_service(
                        node, certificates, 5_000 if quick else 20_000, folder, report
                    )
                    await measure_upkeep(node, 10_000, report)
                    await forget(node)
                await measure_all_lost(node, certificates, n, report)
                ds = [d for d in (0, 1, 10, 100, 1_000, 10_000) if d <= n // 10] + [n // 2]
                await measure_drift(node, certificates, n, ds, report)
                await measure_subscribe(node, certificates, n, report)


async def measure_upkeep(node: BenchNode, count: int, report: Report) -> None:
    """The same rows with and without the digests, both undone: the difference is the upkeep."""
    ids = [os.urandom(24) for _ in range(count)]
    halves = hash_ids(ids).view(np.int64)
    values = (ids, halves[:, 0].tolist(), halves[:, 1].tolist())
    bare = (
        "insert into moorline.association select queue, $1, high, low "
        "from unnest($2::bytea[], $3::bigint[], $4::bigint[]) as given (queue, high, low)"
    )
    kept = "select cardinality(moorline.associate($1, $2, $3, $4))"
    catalog = await asyncpg.connect(
        host=str(node.data / "run"), user="postgres", database="postgres"
    )
    number = await catalog.fetchval("select number from moorline.service")
    best: dict[str, float] = {}
    for name, statement in [("bare", bare), ("kept", kept)] * 3:
        transaction = catalog.transaction()
        await transaction.start()
        started = time.perf_counter()
        await catalog.execute(statement, number, *values, timeout=600)
        took = time.perf_counter() - started
        best[name] = min(took, best.get(name, took))
        await transaction.rollback()
    await catalog.close()
    report.row("upkeep", "us_per_association", (best["kept"] - best["bare"]) / count * 1e6, "us")
    report.row("upkeep", "us_per_association_in_all", best["kept"] / count * 1e6, "us")


async def forget(node: BenchNode) -> None:
    catalog = await asyncpg.connect(
        host=str(node.data / "run"), user="postgres", database="postgres"
    )
    await catalog.execute("delete from moorline.association; delete from moorline.service_bucket")
    await catalog.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    with Report("drift", as_json=options.json) as report:
        uvloop.run(run(options.quick, report))


if __name__ == "__main__":
    main()
