"""What the library costs its program: CPU of the client for each call, one at a time and 64 side by side.

    python -m bench.calls [--quick] [--json]

One client on one connection to a real node, at `sync=process`, so that the client seldom waits. Bodies
have 100 bytes.

    echo       a call that does nothing
    send       to one of 64 queues
    publish    to one of 64 topics
    get        the head of a queue, without subscribing
    cycle      a message of a queue, taken by its reader and acknowledged
    take       a message of a topic, taken by its subscription and acknowledged

Told is the CPU of the client's process, and beside it that of the node's.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bench.node import BenchNode
from bench.report import Report, run_bench, tell
from moorline import connect
from moorline.client.moor import Moor
from moorline.client.topic import record

FLAGS = ["--set=streams.sync=process", "--set=queues.sync=process"]
BODY = bytes(100)
PLACES = 64
QUEUE_HOLDS = 100
"""Messages of a queue at once: below its quota."""

Work = Callable[[Moor, int, int], Awaitable[None]]
"""So many, by so many side by side."""


class Plan(NamedTuple):
    one_at_a_time: int
    side_by_side: int


FULL = Plan(4_000, 64_000)
QUICK = Plan(1_000, 16_000)


async def side_by_side(count: int, workers: int, act: Callable[[int], Awaitable[object]]) -> None:
    async def some(first: int) -> None:
        for number in range(first, count, workers):
            await act(number)

    await asyncio.gather(*(some(first) for first in range(workers)))


async def echo(moor: Moor, count: int, workers: int) -> None:
    await side_by_side(count, workers, lambda _: moor.echo(BODY))


async def publish(moor: Moor, count: int, workers: int) -> None:
    await side_by_side(count, workers, lambda n: moor.publish(f"calls/{n % PLACES}", BODY))


async def get(moor: Moor, count: int, workers: int) -> None:
    queue = await moor.create_queue()
    await moor.send(queue.id, BODY)
    await side_by_side(count, workers, lambda _: queue.get())
    await queue.delete()


def cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Costs:
    """CPU of a stretch of work, here and in the node."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self.client_s = self.node_s = 0.0

    def __enter__(self) -> None:
        self.node_s -= cpu_s(self._node.pid)
        self.client_s -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.client_s += time.process_time()
        self.node_s += cpu_s(self._node.pid)

    def tell(self, report: Report, case: str, count: int) -> None:
        report.row(case, "client_cpu_us", self.client_s / count * 1e6, "us")
        report.row(case, "server_cpu_us", self.node_s / count * 1e6, "us")


async def sends_and_cycles(
    report: Report, node: BenchNode, moor: Moor, count: int, way: str, workers: int
) -> None:
    """In rounds of what the queues hold, which are taken out again by their readers."""
    queues = await moor.create_queues(PLACES)
    sends, cycles = Costs(node), Costs(node)
    each = min(QUEUE_HOLDS, max(1, count // PLACES))
    rounds = max(1, count // (each * PLACES))
    for _ in range(rounds):
        with sends:
            await side_by_side(
                each * PLACES, workers, lambda n: moor.send(queues[n % PLACES].id, BODY)
            )

        async def drain(place: int) -> None:
            left, letters = each, queues[place].read()
            async for message in letters:
                await message.ack()
                left -= 1
                if not left:
                    break
            await letters.aclose()  # type: ignore[attr-defined]

        with cycles:
            await side_by_side(PLACES, workers, drain)
    sends.tell(report, f"send, {way}", rounds * each * PLACES)
    cycles.tell(report, f"cycle, {way}", rounds * each * PLACES)
    for queue in queues:
        await queue.delete()


async def takes(report: Report, node: BenchNode, moor: Moor, count: int) -> None:
    """One by one out of what the node pushes in blocks."""
    subscription = await moor.subscribe("takes/#")
    await moor.publish_all([record(f"takes/{n % PLACES}", BODY) for n in range(count)])
    costs = Costs(node)
    with costs:
        for _ in range(count):
            message = await anext(subscription)
            await message.ack()
    costs.tell(report, "take, one at a time", count)
    await subscription.close()


async def run(report: Report, folder: Path, quick: bool) -> None:
    plan = QUICK if quick else FULL
    kinds: tuple[tuple[str, Work], ...] = (("echo", echo), ("publish", publish), ("get", get))
    with BenchNode(folder, FLAGS) as node:
        async with connect(node.address) as moor:
            for way, count, workers in (
                ("one at a time", plan.one_at_a_time, 1),
                ("64 side by side", plan.side_by_side, 64),
            ):
                tell(way)
                for name, work in kinds:
                    await work(moor, count // 10, workers)  # what is first meets cold caches
                    costs = Costs(node)
                    with costs:
                        await work(moor, count, workers)
                    costs.tell(report, f"{name}, {way}", count)
                await sends_and_cycles(report, node, moor, count, way, workers)
            await takes(report, node, moor, plan.side_by_side)


def main() -> None:
    run_bench("calls", __doc__, run)


if __name__ == "__main__":
    main()
