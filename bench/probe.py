"""One benchmark of any checkout, with its CPU to the nanosecond and without its peers.

    cd CHECKOUT && .venv/bin/python PATH/TO/bench/probe.py BENCH [--quick]

`bench.compare` runs it in both checkouts, so that both are measured by the same yardstick however old they
are. It runs `bench/BENCH.py` of the folder that it is started in, with three things
changed: the kernel's ticks of 10 ms become what its scheduler has counted, peers are not
started, and the benchmarks that tell no CPU
themselves (wire, planning, stalls, checkpoints) tell it for each case. What a benchmark counts over less
than half a second of CPU is done for longer, since a heartbeat of the node would be a tenth of a stretch of
20 ms, and its cases that tell none are left out. Rows are as with `--json`.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

Figures = list[tuple[str, str, float]]
"""Case, metric and value of what is told beside the benchmark's own rows."""

QUEUES_S, TOPICS_S = 1.5, 1.0
TOPICS_BACKLOG = 600_000
PLANNING_TIMES = 20
"""So much longer than `--quick`."""

SETTLE_LOOK_S, SETTLED_SHARE, SETTLE_LOOKS_MAX = 0.5, 0.05, 60
"""Servers that take less than this share of a core between two looks have settled."""


def of_tree_s(pid: int) -> float:
    """CPU of a process and of all below it that live, to the nanosecond."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += parents.get(one, [])
        total += of_one_s(one)
    return total


def of_one_s(pid: int) -> float:
    """CPU of a process, to the nanosecond; threads that have ended are not in it."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(_of_thread_s(thread) for thread in threads)
    except OSError:
        return 0.0


def _of_thread_s(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def below_s() -> float:
    """Of the servers: all processes that this one has started."""
    return of_tree_s(os.getpid()) - of_one_s(os.getpid())


def settle() -> None:
    """Waits until the servers have done what the filling left to them, such as seals."""
    for _ in range(SETTLE_LOOKS_MAX):
        before_s = below_s()
        time.sleep(SETTLE_LOOK_S)
        if below_s() - before_s < SETTLED_SHARE * SETTLE_LOOK_S:
            return


class Costs:
    """What a stretch of work cost here and in the servers, shared out over what it did."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._server_s, self._client_s = below_s(), time.process_time()

    def note(self, case: str, count: float, what: str) -> None:
        server_s, client_s = below_s() - self._server_s, time.process_time() - self._client_s
        self._figures.append((case, f"server_cpu_us_per_{what}", server_s / count * 1e6))
        self._figures.append((case, f"client_cpu_us_per_{what}", client_s / count * 1e6))


# --- benchmarks that tell no CPU -------------------------------------------------------------------


def wire(module: Any, figures: Figures) -> None:
    """Each measurement gives messages a second, and `seconds` is how long it went on."""
    names = iter(("single", "single pipelined 64", "batched 100"))

    def counted(act: Callable[..., Awaitable[float]]) -> Callable[..., Awaitable[float]]:
        @wraps(act)
        async def measure(moor: Any, seconds: float, **more: int) -> float:
            costs, started = Costs(figures), time.perf_counter()
            per_s = await act(moor, seconds, **more)
            costs.note(next(names), per_s * (time.perf_counter() - started), "message")
            return per_s

        return measure

    module.one_at_a_time = counted(module.one_at_a_time)
    module.in_batches = counted(module.in_batches)
    if hasattr(module, "compare"):
        module.compare = lambda *_: None  # the other ways were not there before


def queues(module: Any, figures: Figures) -> None:  # noqa: ARG001 - it tells by itself
    """Those queues of whose messages it tells the CPU, and longer."""
    module.QUICK = module.Plan((module.CPU_QUEUES,), QUEUES_S, 0.0, 0.1, (), 0, (), 1)


def topics(module: Any, figures: Figures) -> None:  # noqa: ARG001 - it tells by itself
    async def nothing(*_: object, **__: object) -> None: ...

    module.QUICK = module.Plan(1, TOPICS_S, TOPICS_BACKLOG, 0.1, 1)
    module.from_a_subscription = nothing  # was not there before
    for name in ("_members_come_and_go", "_memory", "_latency", "_publish_by_library"):
        setattr(module.Bench, name, nothing)


def planning(module: Any, figures: Figures) -> None:
    names = iter(("all, in turn", "ends", "a batch", "all of them"))
    took_ms = module.took_ms

    def measure(action: Callable[[], object], turns: int) -> float:
        turns *= PLANNING_TIMES
        action()  # it opens the links
        settle()
        costs = Costs(figures)
        value: float = took_ms(action, turns)
        costs.note(next(names), turns, "plan")
        return value

    module.took_ms = measure


def stalls(module: Any, figures: Figures) -> None:
    """Of the rest, echoes take what time there is: only the filling is one amount of work."""
    fill = module.fill

    async def measure(moor: Any, sizes: Any) -> None:
        costs = Costs(figures)
        await fill(moor, sizes)
        costs.note("fill", sum(sizes), "thing")

    module.fill = measure


def checkpoints(module: Any, figures: Figures) -> None:
    """From the first send to the last: shared out over the checkpoints, whose part is nearly all of it.

    How many sends fit between two of them is a matter of the disk, to whose pace they are held.
    """
    known: list[Any] = []

    def checkpoints_of(node: Any) -> int:
        return len(module.DONE.findall(node.folder.with_suffix(".stderr").read_text()))

    class Senders(module.Senders):  # type: ignore[misc]
        def __init__(self, node: Any) -> None:
            super().__init__(node)
            self.before = checkpoints_of(node)
            self.costs = Costs(figures)
            known.append(self)

    measure = module.measure

    async def measured(report: Any, folder: Path, queues: int) -> None:
        kill = module.Node.kill

        def noted(node: Any) -> None:
            if known and known[-1].sent:
                count = checkpoints_of(node) - known[-1].before
                known[-1].costs.note(f"q={queues}", count, "checkpoint")
            kill(node)

        module.Node.kill = noted
        try:
            await measure(report, folder, queues)
        finally:
            module.Node.kill = kill

    module.Senders, module.measure = Senders, measured
    if hasattr(module, "checkpoint_turns"):
        module.checkpoint_turns.measure = lambda *_: None  # was not there before


def main() -> None:
    bench, *flags = sys.argv[1:]
    sys.path[0] = str(Path.cwd())
    node, client, peers = (
        importlib.import_module(f"bench.{name}") for name in ("node", "queue_client", "peers")
    )
    node.cpu_seconds, client.cpu_s = of_tree_s, of_one_s  # type: ignore[attr-defined]
    peers.installed = lambda _: False  # type: ignore[attr-defined]
    module = importlib.import_module(f"bench.{bench}")
    figures: Figures = []
    if patch := {
        "wire": wire,
        "queues": queues,
        "topics": topics,
        "planning": planning,
        "stalls": stalls,
        "checkpoints": checkpoints,
    }.get(bench):
        patch(module, figures)
    sys.argv = [f"bench.{bench}", "--json", *flags]
    if hasattr(module, "main"):
        module.main()
    else:
        from bench.report import run_bench

        run_bench(bench, "", module.run)
    for case, metric, value in figures:
        print(json.dumps({"bench": bench, "case": case, "metric": metric, "value": value}))


if __name__ == "__main__":
    main()
