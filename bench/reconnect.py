"""Subscriptions that are cut all at once: how long until they go on, and at how many bytes.

    python -m bench.reconnect [--quick] [--json]

Plain subscriptions to topics of their own, by clients that have a thousand each, at one node behind a port
that can be cut. All are cut together, and come back by themselves. Bytes are those of both directions behind
the cut, hellos included. A pause by chance of half a second at most is in the time; CPU is that of node and
clients. `anew` is what the same clients did when they first subscribed, in as few frames.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path

from chaos.proxy import CHUNK_BYTES, LinkProxy

import moorline
from bench.node import BenchNode, cpu_seconds
from bench.report import Report, run_bench
from moorline import EventKind
from moorline.client.events import Events

SUBSCRIPTIONS, QUICK = 10_000, 2_000
PER_CLIENT = 1_000
SHARDS = 2


class CountingProxy(LinkProxy):
    """A port that can be cut, and counts what passes."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_bytes = 0

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                self.passed_bytes += len(data)
                writer.write(data)
                await writer.drain()


class Costs:
    """What passes between two moments."""

    def __init__(self, proxy: CountingProxy) -> None:
        self._proxy = proxy
        self._bytes, self._began = proxy.passed_bytes, time.monotonic()
        self._cpu_s = self._used_s()

    @staticmethod
    def _used_s() -> float:
        # The node is a child of ours, and counted with us.
        return cpu_seconds(os.getpid())

    def tell(self, report: Report, case: str, count: int) -> None:
        took_s = time.monotonic() - self._began
        report.row(case, "resumed_s", took_s, "s")
        passed = self._proxy.passed_bytes - self._bytes
        report.row(case, "bytes_per_subscription", passed / count, "B")
        used_s = self._used_s() - self._cpu_s
        report.row(case, "cpu_us_per_subscription", used_s / count * 1e6, "us")


async def resumed(events: Events) -> None:
    async for event in events:
        if event.kind is EventKind.RESUMED:
            return


async def run(report: Report, folder: Path, quick: bool) -> None:
    count = QUICK if quick else SUBSCRIPTIONS
    flags = [f"--set=streams.shards={SHARDS}", "--set=streams.sync=process"]
    async with CountingProxy() as proxy, contextlib.AsyncExitStack() as stack:
        node = stack.enter_context(BenchNode(folder, flags))
        proxy.target = int(node.address.rpartition(":")[2])
        address = f"tcp://127.0.0.1:{proxy.port}"
        clients = [
            await stack.enter_async_context(moorline.connect(address))
            for _ in range(count // PER_CLIENT)
        ]
        costs = Costs(proxy)
        for number, client in enumerate(clients):
            filters = [f"bench/{number}/{place}" for place in range(PER_CLIENT)]
            await asyncio.gather(*(client.subscribe(one) for one in filters))
        costs.tell(report, f"n={count} anew", count)
        listening = [client.events() for client in clients]
        costs = Costs(proxy)
        proxy.drop()
        proxy.heal()
        await asyncio.gather(*(resumed(events) for events in listening))
        costs.tell(report, f"n={count} resumed", count)
        # They are there: what is published now comes.
        for number, client in enumerate(clients):
            known = await client.subscribe(f"bench/{number}/0")
            await client.publish(f"bench/{number}/0", b"there")
            async with asyncio.timeout(30):
                assert (await anext(known)).body == b"there"


if __name__ == "__main__":
    run_bench("reconnect", __doc__, run)
