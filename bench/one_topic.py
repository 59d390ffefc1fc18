"""One topic of a hundred: what it costs to read it, beside what it costs to read them all.

Messages are spread evenly over the topics, so every stream has a hundredth of each. Only sealed streams know
where a topic's messages are: what is published is sealed before anything is read, but for the newest streams.
"""

import asyncio
import time
from pathlib import Path

import moorline
from bench.node import TICKS, BenchNode, cpu_seconds
from bench.report import Report, tell

TOPICS = 100
ONE = "hundred/t07"
ALL = "hundred/#"
BATCH = 5_000
WINDOW = 10_000
TURNS = 20
"""A topic is read so often for one figure, because one time costs less than the system counts."""
BODY = b"x" * 100
SETTINGS = ["--set=streams.shards=4", "--set=streams.generation_bytes_max=1048576"]
SEALED_S_MAX = 60
CASE = "one topic of 100"
LIMIT = 1_000
"""Messages of a batch, where a query reads a topic step by step."""


async def publish(address: str, count: int) -> None:
    """Evenly to all topics, in turn."""
    async with moorline.connect(address) as moor:
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            await moor.publish_all(
                [moorline.record(f"hundred/t{number % TOPICS:02}", BODY) for number in numbers]
            )


async def sealed(address: str) -> None:
    """Waits until each shard has but its newest stream open."""
    end = time.monotonic() + SEALED_S_MAX
    async with moorline.connect(address) as moor:
        while True:
            streams = (await moor.streams()).streams
            open_ones = [one for one in streams if not one.is_sealed]
            if len(open_ones) <= len({one.shard for one in streams}):
                return
            if time.monotonic() > end:
                raise TimeoutError("the streams were not sealed")
            await asyncio.sleep(0.05)


async def read(address: str, filter_text: str, count: int) -> None:
    """So many messages from the beginning, without acknowledgements."""
    async with moorline.connect(address) as moor:
        left = count
        async for _ in await moor.subscribe(filter_text, start="beginning", qos=0, window=WINDOW):
            left -= 1
            if not left:
                return


async def from_a_subscription(report: Report, folder: Path, count: int) -> None:
    """CPU of the node alone, for the same messages: one topic, and all of them."""
    tell(CASE)
    with BenchNode(folder, SETTINGS) as node:
        await publish(node.address, count)
        await sealed(node.address)
        used = {}
        for name, filter_text, messages in (("one", ONE, count // TOPICS), ("all", ALL, count)):
            turns = TURNS if name == "one" else 1
            before = cpu_seconds(node.pid)
            for _ in range(turns):
                await read(node.address, filter_text, messages)
            # The system counts in steps; less than one of them is not nothing.
            used[name] = max(cpu_seconds(node.pid) - before, 1 / TICKS) / turns
    report.row(
        CASE, "server_cpu_s", used["one"], "cpu_s", peer="all topics", peer_value=used["all"]
    )
