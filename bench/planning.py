"""Planning a batch over a cluster whose shards keep many generations, without Spark.

    python -m bench.planning [--quick] [--json]

A micro-batch asks three times what there is. It asks how far all shards go, and for the streams behind the
last batch, all nodes side by side. The peer in the same run is what it asked for before: every generation
of every shard, of one node after the other.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import moorline
from bench.node import BenchNode
from bench.report import Report, tell
from moorline.catalog import EmbeddedPostgres
from moorline.spark.node_link import Links
from moorline.spark.node_streams import NodeStreams
from moorline.spark.options import Endpoint
from moorline.spark.planning import ends
from moorline.spark.streams import described
from moorline.wire.stream_file import ClusterDescribed, DescribeCluster

SHARDS = 8
GENERATION_BYTES = 4 << 10
BODY = bytes(GENERATION_BYTES)
"""A message fills a generation, and the next commit begins another."""
KEYS = 4 * SHARDS
"""Of a call: so many that no shard is left out."""


class Plan(NamedTuple):
    nodes: int
    generations: int
    """Of a shard."""
    turns: int


FULL = Plan(nodes=3, generations=250, turns=40)
QUICK = Plan(nodes=2, generations=100, turns=10)


@contextlib.asynccontextmanager
async def cluster(folder: Path, plan: Plan) -> AsyncIterator[list[BenchNode]]:
    """Nodes on one catalog, each with its messages."""
    async with EmbeddedPostgres(folder / "catalog") as postgres:
        with contextlib.ExitStack() as stack:
            nodes = []
            for number in range(plan.nodes):
                home = folder / f"node-{number}"
                home.mkdir()
                flags = [f"--node={home.name}", f"--catalog={postgres.dsn}"]
                flags += [f"--set=streams.shards={SHARDS}", "--set=streams.sync=process"]
                flags += [f"--set=streams.generation_bytes_max={GENERATION_BYTES}"]
                nodes.append(stack.enter_context(BenchNode(home, flags)))
                await publish(nodes[-1].address, plan.generations)
                tell(f"{home.name} is filled")
            yield nodes


async def publish(address: str, generations: int) -> None:
    records = [moorline.record("bench", BODY, key=b"%d" % number) for number in range(KEYS)]
    async with moorline.connect(address) as moor:
        for _ in range(generations):
            await moor.publish_all(records)


def took_ms(action: Callable[[], object], turns: int) -> float:
    """The middle of several turns, behind one that opens the links."""
    action()
    found = []
    for _ in range(turns):
        started = time.perf_counter()
        action()
        found.append((time.perf_counter() - started) * 1_000)
    return statistics.median(found)


def measure(report: Report, address: str, turns: int) -> None:
    streams, links = NodeStreams(Endpoint(address)), Links(Endpoint(address))

    def everything() -> int:
        """As it was asked before."""
        told = links.call((address,), DescribeCluster, ClusterDescribed)
        return sum(len(links.streams(tuple(known))) for _, known, _ in told.nodes)

    try:
        bounds = described(streams, {}).bounds
        first = dict.fromkeys(bounds, 0)
        last = {shard: max(0, end - 1) for shard, end in ends(bounds).items()}
        listed = took_ms(everything, turns)
        tell(f"{everything()} generations in {len(bounds)} shards")
        for case, since in (("ends", {}), ("a batch", last), ("all of them", first)):
            value = took_ms(lambda since=since: described(streams, since), turns)  # type: ignore[misc]
            report.row(case, "planning_ms", value, "ms", peer="all, in turn", peer_value=listed)
    finally:
        streams.close()
        links.close()


async def run(report: Report, folder: Path, plan: Plan) -> None:
    async with cluster(folder, plan) as nodes:
        await asyncio.to_thread(measure, report, nodes[0].address, plan.turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-planning-", ignore_cleanup_errors=True) as name,
        Report("planning", as_json=options.json) as report,
    ):
        asyncio.run(run(report, Path(name), QUICK if options.quick else FULL))


if __name__ == "__main__":
    main()
