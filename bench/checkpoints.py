"""Senders while checkpoints of very many queues that nobody reads are under way.

    python -m bench.checkpoints [--quick] [--json]

One client sends to all queues in turn, as fast as it is answered, with a log that is too small for it:
checkpoint follows checkpoint. The figure that counts is the longest time in which no batch was answered. How
much of it can be ours is measured apart, by CPU: `bench/checkpoint_turns.py`.
"""

import asyncio
import re
import time
from pathlib import Path

from bench import checkpoint_turns
from bench.queue_client import Node
from bench.report import Report, run_bench, tell
from moorline.limits import MIB

BATCH, AT_ONCE = 500, 8
CHECKPOINTS = 4
SECONDS_MAX = 300
LOG_BYTES_PER_QUEUE = 2_560
"""Of the log's size, so that the same share of it belongs to a queue: 256 MiB, the default, for 100,000."""

ROOM = ("queues.max_queue_messages=1000000", "queues.max_file_messages=2000000")
DONE = re.compile(r"checkpoint  queues=\d+  in_ms=(\d+)")


class Senders:
    """Batches under way, and when the last one was answered."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.began_s = self._last_s = time.perf_counter()
        self.sent = 0
        self.longest_s = 0.0

    async def forever(self) -> None:
        while True:
            await self._node.send(BATCH)
            self.sent += BATCH
            self.look()
            self._last_s = time.perf_counter()

    def look(self) -> None:
        """Also while nobody is answered: a gap counts before it ends."""
        self.longest_s = max(self.longest_s, time.perf_counter() - self._last_s)


async def measure(report: Report, folder: Path, queues: int) -> None:
    log_bytes_max = max(MIB, queues * LOG_BYTES_PER_QUEUE)
    at = folder / f"queues-{queues}"
    node = Node(at, "power", *ROOM, f"queues.log_bytes_max={log_bytes_max}")
    errors = at.with_suffix(".stderr")
    try:
        tell(f"{queues} queues: sends over {CHECKPOINTS} checkpoints")
        await node.prepare(queues, BATCH)
        before = len(DONE.findall(errors.read_text()))
        senders = Senders(node)
        tasks = [asyncio.create_task(senders.forever()) for _ in range(AT_ONCE)]
        took: list[str] = []
        while len(took) < CHECKPOINTS and time.perf_counter() < senders.began_s + SECONDS_MAX:
            await asyncio.wait(tasks, timeout=0.25, return_when=asyncio.FIRST_EXCEPTION)
            senders.look()
            took = DONE.findall(errors.read_text())[before:]
        elapsed_s = time.perf_counter() - senders.began_s
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        node.kill()
    case = f"q={queues}"
    report.row(case, "sends_per_s", senders.sent / elapsed_s, "1/s")
    report.row(case, "longest_gap_ms", senders.longest_s * 1_000, "ms")
    report.row(case, "checkpoints", len(took), "")
    report.row(case, "longest_checkpoint_s", max(map(int, took), default=0) / 1_000, "s")


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    for queues in (1_000,) if is_quick else (10_000, 100_000):
        await measure(report, folder, queues)
    for queues in (5_000,) if is_quick else (5_000, 100_000):
        checkpoint_turns.measure(report, folder / f"turns-{queues}", queues)


if __name__ == "__main__":
    run_bench("checkpoints", __doc__, run)
