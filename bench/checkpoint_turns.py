"""What a checkpoint takes of the event loop: the CPU of each of its turns, and of its work on the disk.

A store on a real disk, without a node around it: its steps are done one by one in this thread, and the clock
is this thread's own, so that neither the work of others nor a slow disk is in it. Between two turns a node
reads, commits and answers; the longest turn is how long its senders may stand still for our sake.
"""

import gc
import time
from pathlib import Path

from bench.report import Report, tell
from moorline.config.settings import Queues as Settings
from moorline.journal.disk import FileDisk
from moorline.journal.queues import checkpoint
from moorline.journal.queues.store import Store
from moorline.net.clock import monotonic_ms, wall_ms
from moorline.node.queues import options

BODY = b"x" * 100
ROUNDS = 2
"""One of new queues, and one of those that are there."""


def measure(report: Report, folder: Path, queues: int) -> None:
    tell(f"{queues} queues: the turns of {ROUNDS} checkpoints")
    store = Store(FileDisk(folder), options(Settings(sync="process")), wall_ms)
    store.open()
    ids = [store.create(b"").id for _ in range(queues)]
    turns_ms: list[float] = []
    disk_ms = 0.0
    for _ in range(ROUNDS):
        for queue_id in ids:
            queue = store.find(queue_id)
            assert queue is not None
            store.send(queue, BODY, wall_ms())
        store.commit()
        gc.collect()
        # A node looks for garbage little by little (decision 0090), and not within a turn.
        gc.disable()
        try:
            found_ms, on_disk_ms = of_one(store)
        finally:
            gc.enable()
        turns_ms += found_ms
        disk_ms += on_disk_ms
    store.close()
    case = f"q={queues} turns"
    report.row(case, "longest_cpu_ms", max(turns_ms), "ms")
    report.row(case, "turns", len(turns_ms), "")
    report.row(case, "loop_cpu_ms", sum(turns_ms), "ms")
    report.row(case, "disk_cpu_ms", disk_ms, "ms")


def of_one(store: Store) -> tuple[list[float], float]:
    """The CPU of each turn of the loop in a checkpoint, and that of its work on the disk together."""
    turns_ns: list[int] = []
    disk_ns = 0
    began_ns = time.thread_time_ns()
    for disk_work in checkpoint.steps(store, wall_ms, monotonic_ms):
        turns_ns.append(time.thread_time_ns() - began_ns)
        store.commit()
        began_ns = time.thread_time_ns()
        if disk_work is not None:
            disk_work()
        disk_ns += time.thread_time_ns() - began_ns
        began_ns = time.thread_time_ns()
    turns_ns.append(time.thread_time_ns() - began_ns)
    return [turn_ns / 1e6 for turn_ns in turns_ns], disk_ns / 1e6
