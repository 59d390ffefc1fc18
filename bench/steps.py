"""Where the time of one message goes: from before its publish leaves to when a member has it.

    python -m bench.steps [--quick] [--json]

1,000 messages a second to 64 topics, `sync=power`, one member of a group, publisher and member in one
process: as `latency` in `bench.topics`, and beside Redis with `appendfsync always`. All servers are up at
once and have their rounds in turn. The steps are those of a node of its own, which notes the time at each
(`bench.step_marks`) and so is some microseconds slower a message.

    delivered       from before the publish leaves until the member has it
    answered        until its publisher is told that it is stored
    1 STEP …        from the end of the step before: the median, and what it is of the slowest of a hundred
    ready, no core  for how long the node's loop waited for a core between its write and the commit
    beside garbage  which share of the messages met a collection of garbage on their way; and the slowest
    beside catalog  the same of a statement that stores the group's cursors
    sync alone      the same write and sync at the same pace by a loop that does nothing else
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from bench.node import cpu_seconds
from bench.peers import installed
from bench.report import Report, run_bench, tell
from bench.step_marks import STEPS, Row
from bench.topic_client import TOPICS, Ears, NodeSide, TopicSide, now_ns, stamped
from bench.topic_member import member
from bench.topic_peers import RedisSide
from moorline.journal.begun_syncs import KernelSyncs
from moorline.journal.disk import FileDisk
from moorline.limits import MIB
from moorline.net.connection import Connection

PER_S = 1_000
HANG_S = 60
SYNC_BYTES = 250
"""What one message adds to the log, about."""

CLIENT_STEPS = ("member has read", "delivered")
GROUP = "steps"


class Plan(msgspec.Struct, frozen=True):
    rounds: int
    seconds: float


FULL = Plan(4, 5.0)
QUICK = Plan(2, 2.0)


class MarkedNode(NodeSide):
    """A node that notes the steps."""

    def __init__(self, folder: Path) -> None:
        self._into = folder / "steps.json"
        command = [sys.executable, "-m", "bench.step_marks", str(folder / "data")]
        command += [str(self._into), "streams.sync=power"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"tcp://\S+", line)
        if found is None:
            raise SystemExit("bench: the node did not get ready")
        self.name, self.pid, self.address = "steps", self._process.pid, found[0]

    def begin(self) -> None:
        os.kill(self.pid, signal.SIGUSR1)

    async def told(self) -> dict[str, Any]:
        self._into.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR2)
        async with asyncio.timeout(HANG_S):
            while not self._into.exists():  # noqa: ASYNC110 - a file of another process
                await asyncio.sleep(0.01)
        found: dict[str, Any] = json.loads(self._into.read_text())
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Load:
    """A member of a group, and messages at an even pace. Times are those of this process."""

    def __init__(self, side: TopicSide) -> None:
        self.side = side
        self.delivered: dict[int, int] = {}
        self.answered: dict[int, int] = {}
        self.read: dict[int, int] = {}
        """When the bytes came that a message was in."""
        self._read_ns = 0
        self._wanted = 1
        self._enough = asyncio.Event()

    @contextlib.asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        side = self.side
        await side.make_group(GROUP)
        ears = Ears(lambda _: None, self._see)
        listener = asyncio.create_task(member(side.kind, side.address, GROUP, "m0", ears))
        try:
            while not self.delivered:
                if listener.done():
                    listener.result()
                await side.publish_each([0], stamped(now_ns()))
                await asyncio.sleep(0.01)
            yield
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
            await side.end_group(GROUP)

    def has_read(self, at_ns: int) -> None:
        self._read_ns = at_ns

    def _see(self, _topic: int, stamp: int) -> None:
        self.delivered[stamp] = now_ns()
        self.read[stamp] = self._read_ns
        if len(self.delivered) >= self._wanted:
            self._enough.set()

    async def run(self, seconds: float) -> None:
        for noted in (self.delivered, self.answered, self.read):
            noted.clear()
        self._enough.clear()
        self._wanted = expected = round(seconds * PER_S)
        sent, started, answers = 0, time.perf_counter(), []
        while sent < expected:
            due = (time.perf_counter() - started) * PER_S
            while sent < min(due, expected):
                answers.append(self._publish(sent))
                sent += 1
            await asyncio.sleep(0.001)
        await asyncio.wait_for(asyncio.gather(*answers), HANG_S)
        await asyncio.wait_for(self._enough.wait(), HANG_S)

    def _publish(self, number: int) -> "asyncio.Future[None]":
        stamp = now_ns()
        answer = self.side.publish_each([number % TOPICS], stamped(stamp))
        answer.add_done_callback(lambda _: self.answered.__setitem__(stamp, now_ns()))
        return answer


class Figures:
    """Microseconds of everything, by side and name."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], list[float]] = {}
        self.cpu_us: dict[str, list[float]] = {}
        self.rows: list[Row] = []
        self.beside: dict[str, list[tuple[bool, int]]] = {}
        """Whether each message met it, and how long that message took."""

    def add(self, side: str, name: str, found: Iterable[float]) -> None:
        self.of.setdefault((side, name), []).extend(found)

    def cut(self, side: str, name: str, share: float) -> float:
        found = sorted(self.of[side, name])
        return found[min(int(len(found) * share), len(found) - 1)]


async def rounds(plan: Plan, sides: list[TopicSide], figures: Figures) -> None:
    loads = [Load(side) for side in sides]
    by_side = {load.side.name: load for load in loads}
    original = Connection.data_received

    def data_received(connection: Connection, data: bytes) -> None:
        now = now_ns()
        for load in loads:
            load.has_read(now)
        original(connection, data)

    setattr(Connection, "data_received", data_received)  # noqa: B010 - of this class alone
    async with contextlib.AsyncExitStack() as stack:
        for load in loads:
            await load.side.open()
            await stack.enter_async_context(load.joined())
            await load.run(0.5)  # what is sent first meets cold caches
        for number in range(plan.rounds):
            for name, load in by_side.items():
                tell(f"round {number + 1}: {name}")
                if isinstance(load.side, MarkedNode):
                    load.side.begin()
                cpu_s = cpu_seconds(load.side.pid)
                await load.run(plan.seconds)
                used_s = cpu_seconds(load.side.pid) - cpu_s
                figures.cpu_us.setdefault(name, []).append(used_s / len(load.delivered) * 1e6)
                note(figures, load)
                if isinstance(load.side, MarkedNode):
                    note_steps(figures, load, await load.side.told())
    setattr(Connection, "data_received", original)  # noqa: B010


def note(figures: Figures, load: Load) -> None:
    for name, noted in (("delivered", load.delivered), ("answered", load.answered)):
        figures.add(load.side.name, name, [(at - stamp) / 1e3 for stamp, at in noted.items()])


def note_steps(figures: Figures, load: Load, told: dict[str, Any]) -> None:
    """A row for each message whose steps are all known: not for one that waited for a sync in a thread."""
    for key, row in told["rows"].items():
        stamp = int(key)
        if stamp not in load.delivered or not all(step in row for step in STEPS):
            continue
        row["sent"] = stamp
        row["member has read"] = load.read[stamp]
        row["delivered"] = load.delivered[stamp]
        figures.rows.append(row)
        took = row["delivered"] - stamp
        for name in ("garbage", "catalog"):
            met = any(began < row["delivered"] and stamp < ended for began, ended in told[name])
            figures.beside.setdefault(name, []).append((met, took))


def took_us(row: Row) -> list[float]:
    """Of each step; those that were over before the one before them took nothing."""
    at, found = row["sent"], []
    for step in (*STEPS, *CLIENT_STEPS):
        found.append(max(row[step] - at, 0) / 1e3)
        at = max(at, row[step])
    return found


def report_steps(report: Report, figures: Figures) -> None:
    rows = sorted(figures.rows, key=lambda row: row["delivered"] - row["sent"])
    slowest = rows[-max(len(rows) // 100, 1) :]
    every, slow = [took_us(row) for row in rows], [took_us(row) for row in slowest]
    for place, step in enumerate((*STEPS, *CLIENT_STEPS)):
        case = f"{place + 1} {step}"
        report.row(case, "p50_us", statistics.median(one[place] for one in every), "us")
        report.row(case, "slowest_us", statistics.mean(one[place] for one in slow), "us")
    report.row("ready, no core", "p50_us", statistics.median(waited(row) for row in rows), "us")
    report.row("ready, no core", "slowest_us", statistics.mean(map(waited, slowest)), "us")
    for name, met in figures.beside.items():
        met.sort(key=lambda one: one[1])
        for metric, some in (("share", met), ("slowest_share", met[-len(slowest) :])):
            share = sum(one for one, _ in some) / len(some)
            report.row(f"beside {name}", metric, share * 100, "%")


def waited(row: Row) -> float:
    return row.get("waited", 0) / 1e3


async def sync_alone(folder: Path, seconds: float) -> list[float]:
    """Microseconds of a write of one message's bytes and its sync, begun and told of as the node has it."""
    disk = FileDisk(folder)
    syncs = KernelSyncs.of(folder)
    if syncs is None:
        return []
    file = disk.open("log", create=True)
    file.append(bytes(16 * MIB))
    file.sync()
    disk.sync_all()
    loop, took, position = asyncio.get_running_loop(), list[float](), 0
    loop.add_reader(syncs.fileno(), syncs.told)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done: asyncio.Future[None] = loop.create_future()
        began = time.perf_counter()

        def told(
            error: BaseException | None,
            done: "asyncio.Future[None]" = done,
            began: float = began,
        ) -> None:
            took.append((time.perf_counter() - began) * 1e6)
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        file.write_at(position, bytes(SYNC_BYTES))
        syncs.begin(file, told)
        position += SYNC_BYTES
        await done
        await asyncio.sleep(1 / PER_S)
    loop.remove_reader(syncs.fileno())
    syncs.close()
    file.close()
    return took


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    plan, figures = QUICK if is_quick else FULL, Figures()
    (folder / "sync").mkdir()
    figures.add("sync", "alone", await sync_alone(folder / "sync", plan.seconds))
    makers: list[Callable[[Path], TopicSide]] = [lambda at: NodeSide(at, "power"), MarkedNode]
    if installed("redis-server"):
        makers.insert(1, lambda at: RedisSide(at, "always"))
    sides: list[TopicSide] = []
    try:
        for number, make in enumerate(makers):
            (folder / str(number)).mkdir()
            sides.append(make(folder / str(number)))
        await rounds(plan, sides, figures)
    finally:
        for side in sides:
            side.kill()
    report_totals(report, figures, [side.name for side in sides])
    report_steps(report, figures)


def report_totals(report: Report, figures: Figures, names: list[str]) -> None:
    ours, peer = names[0], names[1] if len(names) > 2 else ""
    for case in ("delivered", "answered"):
        for metric, share in (("p50_us", 0.5), ("p99_us", 0.99)):
            value = figures.cut(ours, case, share)
            theirs = figures.cut(peer, case, share) if peer else 0.0
            report.row(case, metric, value, "us", peer=peer, peer_value=theirs)
    value, theirs = (statistics.median(figures.cpu_us[one]) if one else 0.0 for one in (ours, peer))
    report.row("server", "cpu_us", value, "us", peer=peer, peer_value=theirs)
    if figures.of["sync", "alone"]:
        for metric, share in (("p50_us", 0.5), ("p99_us", 0.99)):
            report.row("sync alone", metric, figures.cut("sync", "alone", share), "us")


if __name__ == "__main__":
    run_bench("steps", __doc__, run)
