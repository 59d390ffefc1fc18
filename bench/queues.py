"""Durable queues beside Redis Streams and NATS JetStream, with the same durability on both sides.

    python -m bench.queues [--quick] [--json]

Every server is real, fresh, on loopback and in a folder of its own; one client process drives one server
at a time, with the same batches under way for each.

    sync=power      beside Redis with `appendfsync always`: on disk before the answer
    sync=process    beside Redis with `appendfsync everysec`, and NATS, which does not sync at all

A cycle is a message sent and answered, received by another connection, acknowledged, and that answered.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from bench.peers import Nats, Redis, installed
from bench.queue_client import Node, Side, cpu_s, disk_bytes, rss_mib
from bench.report import Report, run_bench, tell
from moorline.limits import MIB

BATCH = 500
AT_ONCE = 8
"""Batches under way at once, for every server: 4,000 messages."""

LOAD_BATCH = 100
LOAD_EVERY_S = 0.005
"""The moderate load: so many sends in so much time, 20,000 a second, whether or not the last are done."""

CPU_QUEUES = 1_000
SUSTAINED_QUEUES = (1_000, 100_000)
LATENCY_QUEUES = 1_000
DISK_QUEUES = 1_000
HANG_S = 60
ROOM = ("queues.max_queue_messages=1000000", "queues.max_file_messages=2000000")
"""A queue that nobody reads must hold all that is sent in one case."""

MESSAGES_MAX = 900_000
"""A case ends here even before its time is over: with one queue there is no room for more."""

NO_CHECKPOINT = "queues.log_bytes_max=4000000000"
"""A short case would have a checkpoint in it or not by chance; `sustained` is about those."""


class Plan(msgspec.Struct, frozen=True):
    """How much is done; `--quick` does the same with less."""

    queues: tuple[int, ...]
    seconds: float
    sustained_s: float
    latency_s: float
    disk_syncs: tuple[str, ...]
    disk_messages: int
    idle_queues: tuple[int, ...]
    starts: int


FULL = Plan(
    (1, 1_000, 100_000), 2.5, 15.0, 3.0, ("power", "process"), 200_000, (100_000, 1_000_000), 3
)
QUICK = Plan((1, 1_000, 10_000), 0.3, 0.0, 0.3, ("power",), 20_000, (100_000,), 1)

Maker = Callable[[Path], Side]


class Rate(msgspec.Struct, frozen=True):
    """What one server did in one case."""

    per_s: float
    server_us: float
    client_us: float
    client_share: float


class Bench:
    """One run: its folder, its plan, and the rows it has found."""

    def __init__(self, plan: Plan, report: Report, folder: Path) -> None:
        self.plan = plan
        self.report = report
        self.folder = folder
        self._servers = 0

    async def run(self) -> None:
        redis, nats = installed("redis-server"), installed("nats-server")
        always: list[Maker] = [lambda at: Redis(at, "always")] if redis else []
        everysec: list[Maker] = [lambda at: Redis(at, "everysec")] if redis else []
        jetstream: list[Maker] = [Nats] if nats else []
        for sync, peers in (("power", always), ("process", everysec + jetstream)):
            makers = [_node_maker(sync, *ROOM, NO_CHECKPOINT), *peers]
            as_set_up = [_node_maker(sync, *ROOM), *peers]
            for queues in self.plan.queues:
                await self._throughput(makers, queues)
            if sync == "power" and self.plan.sustained_s:
                for queues in SUSTAINED_QUEUES:
                    await self._sustained(as_set_up, queues)
            await self._latency(makers)
            if sync in self.plan.disk_syncs:
                await self._disk(as_set_up)
        for count in self.plan.idle_queues:
            await self._idle(count, has_redis=redis)

    # --- sends and cycles -------------------------------------------------------------------------

    async def _throughput(self, makers: list[Maker], queues: int) -> None:
        found: list[tuple[str, Rate, Rate]] = []
        for make in makers:
            side = make(self._fresh())
            try:
                tell(f"{side.name} q={queues}: cycles, then sends")
                await side.prepare(queues, BATCH)
                await side.listen()
                cycles = await self._rate(side, side.cycle)
                await side.unlisten()
                sends = await self._rate(side, side.send)
                await side.close()
            finally:
                side.kill()
            found.append((side.name, sends, cycles))
        (ours, our_sends, our_cycles), *others = found
        for name, sends, cycles in others:
            case = f"{ours} {name} q={queues}"
            self._beside(case, "sends_per_s", our_sends.per_s, "1/s", name, sends.per_s)
            self._beside(case, "cycles_per_s", our_cycles.per_s, "1/s", name, cycles.per_s)
        if not others:
            self.report.row(f"{ours} q={queues}", "sends_per_s", our_sends.per_s, "1/s")
            self.report.row(f"{ours} q={queues}", "cycles_per_s", our_cycles.per_s, "1/s")
        for name, sends, cycles in found if queues == CPU_QUEUES else []:
            for what, rate in (("sends", sends), ("cycles", cycles)):
                case = f"{name} q={queues} {what}"
                self.report.row(case, "server_cpu_us_per_message", rate.server_us, "us")
                self.report.row(case, "client_cpu_us_per_message", rate.client_us, "us")

    async def _rate(self, side: Side, act: Callable[[int], Awaitable[None]]) -> Rate:
        done = 0
        # What is sent first meets cold caches and half-open windows; it does not count.
        await asyncio.wait_for(_at_once(act, 2), HANG_S)
        server: float = cpu_s(side.process.pid)
        client, started = time.process_time(), time.perf_counter()
        end = started + self.plan.seconds

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() < end and done < MESSAGES_MAX:
                await act(BATCH)
                done += BATCH

        await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(AT_ONCE))), HANG_S)
        took = time.perf_counter() - started
        client_s = time.process_time() - client
        server_s = cpu_s(side.process.pid) - server
        share = client_s / took
        tell(f"  {done / took:,.0f}/s, server {server_s / took:.0%}, client {share:.0%} of a core")
        return Rate(done / took, server_s / done * 1e6, client_s / done * 1e6, share)

    async def _sustained(self, makers: list[Maker], queues: int) -> None:
        """Sends for so long that a node must checkpoint its log, and Redis rewrite its own."""
        found: list[tuple[str, float, float]] = []
        for make in makers:
            side = make(self._fresh())
            try:
                tell(f"{side.name} q={queues}: sends for {self.plan.sustained_s} s")
                await side.prepare(queues, BATCH)
                per_s, worst_s = await self._sent_in(side, self.plan.sustained_s)
                tell(f"  {per_s:,.0f}/s, longest wait {worst_s:.2f} s")
            finally:
                side.kill()
            found.append((side.name, per_s, worst_s * 1_000))
        (ours, our_per_s, our_worst), *others = found
        for name, per_s, worst in others or [("", 0.0, 0.0)]:
            case = " ".join(part for part in (ours, name, f"q={queues} sustained") if part)
            self._beside(case, "sends_per_s", our_per_s, "1/s", name, per_s)
            self._beside(case, "worst_ms", our_worst, "ms", name, worst)

    async def _sent_in(self, side: Side, seconds: float) -> tuple[float, float]:
        """Sends a second, and the longest wait of a batch, be it answered by the end or not."""
        done, worst_s = 0, 0.0
        began = dict.fromkeys(range(AT_ONCE), time.perf_counter())

        async def worker(number: int) -> None:
            nonlocal done, worst_s
            while True:
                await side.send(BATCH)
                done += BATCH
                now = time.perf_counter()
                worst_s = max(worst_s, now - began[number])
                began[number] = now

        tasks = [asyncio.create_task(worker(number)) for number in began]
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return done / seconds, max(worst_s, time.perf_counter() - min(began.values()))

    # --- latency ----------------------------------------------------------------------------------

    async def _latency(self, makers: list[Maker]) -> None:
        found: list[tuple[str, list[float], list[float]]] = []
        for make in makers:
            side = make(self._fresh())
            try:
                tell(f"{side.name}: latency")
                await side.prepare(LATENCY_QUEUES, BATCH)
                await _at_once(side.send, 2)
                single = await asyncio.wait_for(self._one_at_a_time(side), HANG_S)
                loaded = await asyncio.wait_for(self._under_load(side), HANG_S)
                await side.close()
            finally:
                side.kill()
            found.append((side.name, single, loaded))
        (ours, *our_times), *others = found
        per_s = round(LOAD_BATCH / LOAD_EVERY_S)
        for name, *times in others or [("", [], [])]:
            for what, mine, theirs in zip(
                ("one at a time", f"{per_s}/s"), our_times, times, strict=True
            ):
                case = " ".join(part for part in (ours, name, what) if part)
                for metric, place in (("p50_ms", 49), ("p99_ms", 98)):
                    value = statistics.quantiles(mine, n=100)[place] * 1_000
                    peer = statistics.quantiles(theirs, n=100)[place] * 1_000 if theirs else 0.0
                    self._beside(case, metric, value, "ms", name, peer)

    async def _one_at_a_time(self, side: Side) -> list[float]:
        times: list[float] = []
        end = time.perf_counter() + self.plan.latency_s
        started = time.perf_counter()
        while started < end:
            await side.send(1)
            now = time.perf_counter()
            times.append(now - started)
            started = now
        return times

    async def _under_load(self, side: Side) -> list[float]:
        """Times from when a batch was due to its last answer, so that a late sender shows too."""
        times: list[float] = []
        due = time.perf_counter()
        end = due + self.plan.latency_s
        waiting = set()

        async def one(due: float) -> None:
            await side.send(LOAD_BATCH)
            times.append(time.perf_counter() - due)

        while due < end:
            task = asyncio.create_task(one(due))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            due += LOAD_EVERY_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await asyncio.gather(*waiting)
        return times

    # --- disk -------------------------------------------------------------------------------------

    async def _disk(self, makers: list[Maker]) -> None:
        """Messages that nobody read, after a clean stop: ours are checkpointed by it."""
        found: list[tuple[str, float, float]] = []
        count = self.plan.disk_messages
        for make in makers:
            at = self._fresh()
            side = make(at)
            try:
                tell(f"{side.name}: {count} messages on disk")
                await side.prepare(DISK_QUEUES, BATCH)
                for _ in range(count // BATCH):
                    await side.send(BATCH)
                await side.close()
            finally:
                side.stop()
            apparent, blocks = disk_bytes(at / "queues" if isinstance(side, Node) else at)
            found.append((side.name, apparent / count, blocks / count))
        (ours, our_bytes, our_blocks), *others = found
        for name, their_bytes, their_blocks in others or [("", 0.0, 0.0)]:
            case = " ".join(part for part in (ours, name, f"q={DISK_QUEUES}") if part)
            self._beside(case, "disk_bytes_per_message", our_bytes, "B", name, their_bytes)
            self._beside(case, "disk_blocks_bytes_per_message", our_blocks, "B", name, their_blocks)

    # --- idle queues ------------------------------------------------------------------------------

    async def _idle(self, count: int, *, has_redis: bool) -> None:
        """A store of empty queues, stopped and started again: what it holds and how long it takes."""
        tell(f"idle: {count} queues")
        empty_s, empty_mib = self._restarted(await self._made(self._fresh(), 0))
        start_s, mib = self._restarted(await self._made(self._fresh(), count))
        peer, peer_s, peer_mib, peer_empty_mib = "", 0.0, 0.0, 0.0
        if has_redis:
            peer = "redis-everysec"
            _, peer_empty_mib = await self._redis_idle(0)
            peer_s, peer_mib = await self._redis_idle(count)
        case = f"idle n={count}"
        each, peer_each = (mib - empty_mib) / count, (peer_mib - peer_empty_mib) / count
        self._beside(case, "idle_rss_mb", mib, "MiB", peer, peer_mib)
        self._beside(case, "idle_bytes_per_queue", each * MIB, "B", peer, peer_each * MIB)
        # Less an empty store's time: a node starts a Postgres too.
        self.report.row(case, "idle_start_s", max(0.0, start_s - empty_s), "s")
        self._beside(case, "idle_start_total_s", start_s, "s", peer, peer_s)

    async def _made(self, at: Path, count: int) -> Path:
        node = Node(at, "power")
        try:
            await node.make_queues(count)
        finally:
            node.stop()
        return at

    def _restarted(self, at: Path) -> tuple[float, float]:
        """Seconds to the ready line, and MiB of the node alone; medians."""
        starts, sizes = [], []
        for _ in range(self.plan.starts):
            node = Node(at, "power")
            starts.append(node.start_s)
            sizes.append(rss_mib(node.process.pid))
            node.stop()
        tell(f"  ready after {', '.join(f'{s:.2f}' for s in starts)} s, {sizes[-1]:.0f} MiB")
        return statistics.median(starts), statistics.median(sizes)

    async def _redis_idle(self, count: int) -> tuple[float, float]:
        at = self._fresh()
        redis = Redis(at, "everysec")
        try:
            await redis.make_queues(count)
            await redis.close()
        finally:
            redis.stop()
        redis = Redis(at, "everysec")
        try:
            start_s = await redis.ready()
            rss = rss_mib(redis.process.pid)
            await redis.close()
        finally:
            redis.stop()
        return start_s, rss

    # --- inside -----------------------------------------------------------------------------------

    def _fresh(self) -> Path:
        self._servers += 1
        return self.folder / f"server-{self._servers}"

    def _beside(
        self, case: str, metric: str, value: float, unit: str, peer: str, peer_value: float
    ) -> None:
        self.report.row(case, metric, value, unit, peer=peer, peer_value=peer_value)


def _node_maker(sync: str, *settings: str) -> Maker:
    return lambda at: Node(at, sync, *settings)


async def _at_once(act: Callable[[int], Awaitable[None]], rounds: int) -> None:
    async def worker() -> None:
        for _ in range(rounds):
            await act(BATCH)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    await Bench(QUICK if is_quick else FULL, report, folder).run()


if __name__ == "__main__":
    run_bench("queues", __doc__, run)
