"""How long a node keeps others waiting while it does something large for one client.

    python -m bench.stalls [--quick] [--json]

A node holds many topics, retained messages, queues and groups. One connection asks for all of something, call
by call; another one, in a process of its own, sends an echo as soon as the one before is answered. Told is
the longest time that an echo took meanwhile, and how long the calls took.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import multiprocessing.connection
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench.node import BenchNode
from bench.report import Report
from moorline.client.connecting import connect
from moorline.client.moor import Moor
from moorline.client.topic import record
from moorline.config.addresses import listen_address
from moorline.limits import HELLO_TIMEOUT_MS, KEEPALIVE_MS, QUEUES_PER_PAGE_MAX
from moorline.net.caller import Caller, open_caller
from moorline.wire.queue import ListQueues, QueuesListed
from moorline.wire.topic import Publish, Record

FLAGS = ["--set=streams.sync=process", "--set=queues.sync=process"]


class Sizes(NamedTuple):
    topics: int
    retained: int
    queues: int
    groups: int


FULL = Sizes(266_000, 100_000, 20_000, 100)
QUICK = Sizes(30_000, 10_000, 5_000, 50)


def ping(address: str, ends: "multiprocessing.connection.Connection[Any, Any]") -> None:
    """In a process of its own: told to begin, it echoes until it is told to stop; gives the longest."""

    async def run() -> None:
        async with connect(address) as moor:
            ends.send(0.0)
            while True:
                await asyncio.to_thread(ends.recv)
                longest, is_over = 0.0, False
                # One at least: on a crowded machine it may have its first turn behind the work.
                while not is_over:
                    is_over = ends.poll()
                    begun = time.perf_counter()
                    await moor.echo(b"there?")
                    longest = max(longest, time.perf_counter() - begun)
                ends.recv()
                ends.send(longest)

    with contextlib.suppress(EOFError, KeyboardInterrupt):
        uvloop.run(run())


class Pinger:
    """The end of it in this process."""

    def __init__(self, address: str) -> None:
        self._ends, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=ping, args=(address, there), daemon=True)
        self._process.start()
        self._ends.recv()

    async def during(self, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
        """(longest echo, time of the work), in seconds."""
        self._ends.send("begin")
        await asyncio.sleep(0.05)
        begun = time.perf_counter()
        await work()
        took = time.perf_counter() - begun
        self._ends.send("stop")
        return await asyncio.to_thread(self._ends.recv), took

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


async def fill(moor: Moor, sizes: Sizes) -> None:
    topics = [f"many/{number % 1_000}/{number}" for number in range(sizes.topics)]
    for start in range(0, len(topics), 20_000):
        await moor.publish_all(
            [record(topic, b"x" * 50) for topic in topics[start : start + 20_000]]
        )
    for start in range(0, sizes.retained, 20_000):
        numbers = range(start, min(start + 20_000, sizes.retained))
        await moor.publish_all(
            [record(f"kept/{number % 100}/{number}", b"x" * 50, retain=True) for number in numbers]
        )
    for start in range(0, sizes.queues, 10_000):
        await moor.create_queues(min(10_000, sizes.queues - start))
    for number in range(sizes.groups):
        await moor.group(f"$shared/g{number}/many/{number}/#").create()


async def all_topics(moor: Moor, filter_text: str = "#") -> int:
    after, count = "", 0
    while True:
        page = await moor.topics(filter_text, after)
        if not page:
            return count
        after, count = page[-1][0], count + len(page)


async def retained_by_subscribing(moor: Moor, filter_text: str) -> None:
    subscription = await moor.subscribe(filter_text)
    await subscription.close()


async def whole_frame(caller: Caller) -> None:
    """As many messages as a frame holds, each as small as can be."""
    batch = [Record("t", b"")] * 2_000
    await caller.call_all([lambda call: Publish(call, batch) for _ in range(100)])


async def all_queues(caller: Caller) -> None:
    after = b""
    while True:
        make = partial(ListQueues, after=after, count=QUEUES_PER_PAGE_MAX)
        page = (await caller.call(make, QueuesListed)).queues
        if not page:
            return
        after = page[-1][0]


async def measured(
    address: str, http: str, *, idle_s: float = 1.0
) -> AsyncIterator[tuple[str, float, float]]:
    pinger = Pinger(address)
    caller = await open_caller(
        listen_address(address),
        lambda: Caller("bench", hello_timeout_ms=HELLO_TIMEOUT_MS, keepalive_ms=KEEPALIVE_MS),
        timeout_ms=HELLO_TIMEOUT_MS,
    )
    try:
        async with connect(address) as moor:
            works: dict[str, Callable[[], Awaitable[object]]] = {
                "nothing": lambda: asyncio.sleep(idle_s),
                "list all topics": lambda: all_topics(moor),
                "list topics by a filter that none matches": lambda: all_topics(moor, "+/none"),
                "subscribe to all retained": lambda: retained_by_subscribing(moor, "kept/#"),
                "subscribe where none is retained": lambda: retained_by_subscribing(
                    moor, "kept/+/none"
                ),
                "list all queues": lambda: all_queues(caller),
                "list all groups": lambda: moor.groups(),
                "describe streams": lambda: moor.streams(),
                "publish 200,000 of the smallest": lambda: whole_frame(caller),
                "/metrics": lambda: asyncio.to_thread(
                    lambda: urllib.request.urlopen(f"{http}/metrics").read()
                ),
            }
            for name, work in works.items():
                longest, took = await pinger.during(work)
                yield name, longest, took
    finally:
        caller.close("DONE", "")
        pinger.stop()


async def run(address: str, http: str, sizes: Sizes, report: Report) -> None:
    async with connect(address) as moor:
        await fill(moor, sizes)
    async for name, longest, took in measured(address, http):
        report.row(name, "longest_echo", longest * 1_000, "ms")
        report.row(name, "took", took * 1_000, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Report("stalls", as_json=options.json) as report:
        flags = [*FLAGS, "--http=127.0.0.1:0"]
        with BenchNode(Path(folder), flags) as node:
            sizes = QUICK if options.quick else FULL
            uvloop.run(run(node.address, node.http_address, sizes, report))


if __name__ == "__main__":
    main()
