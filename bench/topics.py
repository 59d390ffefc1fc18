"""Topics beside NATS JetStream and Redis Streams, with the nearest durability on both sides.

    python -m bench.topics [--quick] [--json]

    sync=power      beside Redis with `appendfsync always`: on disk before the answer
    sync=process    beside Redis with `appendfsync everysec`, and NATS, which does not sync at all

Every server is real, fresh, on loopback and in a folder of its own; they take turns, and a figure is the
median of all turns. Published are messages of 100 bytes to 64 topics; members of groups are processes of
their own. A message counts as delivered when the server knows that it is acknowledged.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import moorline
from bench.node import TICKS, BenchNode, cpu_seconds
from bench.one_topic import from_a_subscription
from bench.peers import Redis, installed
from bench.queue_client import rss_mib
from bench.report import Report, run_bench, tell
from bench.topic_client import NAMES, TOPICS, Ears, NodeSide, TopicSide, now_ns, stamped
from bench.topic_member import Crew, member
from bench.topic_peers import NatsSide, RedisSide
from moorline.limits import MIB

AT_ONCE = 8
"""Batches under way at once, for every server."""

PIPELINED = 50
"""Single calls that leave together; with those under way at once 400 messages are unanswered."""

HANG_S = 60
LATENCY_PER_S = 1_000
FLOW_S = 0.01
"""While members come and go each topic gets a message so often."""

FEW_SHARDS, MANY_SHARDS = 8, 1_024
MEMBERS = (1, 4)

PUBLISHES = {
    "batched": (1_000, False, AT_ONCE),
    "batched-100": (100, False, AT_ONCE),
    "single pipelined": (PIPELINED, True, AT_ONCE),
    "single one at a time": (1, True, 1),
}
"""Messages of a batch, whether each is a call of its own, and batches under way at once."""


class Plan(msgspec.Struct, frozen=True):
    """How much is done; `--quick` does the same with less."""

    rounds: int
    seconds: float
    messages: int
    latency_s: float
    failures: int


FULL = Plan(3, 1.5, 400_000, 10.0, 3)
QUICK = Plan(1, 0.4, 60_000, 1.5, 1)

Maker = Callable[[Path], TopicSide]
Key = tuple[str, str]


class Figures(dict[tuple[str, Key], list[float]]):
    """What each side did in each (case, metric), turn by turn."""

    def note(self, side: str, case: str, metric: str, value: float) -> None:
        self.setdefault((side, (case, metric)), []).append(value)
        tell(f"  {case}: {value:,.4g} {metric}")

    def median(self, side: str, key: Key) -> float | None:
        found = self.get((side, key))
        return statistics.median(found) if found else None

    def keys_of(self, side: str) -> list[Key]:
        return [key for name, key in self if name == side]


class Bench:
    """One run: its folder, its plan, and what it has found."""

    def __init__(self, plan: Plan, report: Report, folder: Path) -> None:
        self.plan = plan
        self.report = report
        self.folder = folder
        self.figures = Figures()
        self._servers = 0

    async def run(self) -> None:
        redis, nats = installed("redis-server"), installed("nats-server")
        makers: list[Maker] = [lambda at: NodeSide(at, "power")]
        makers += [lambda at: RedisSide(at, "always")] if redis else []
        makers += [lambda at: NodeSide(at, "process")]
        makers += [lambda at: RedisSide(at, "everysec")] if redis else []
        makers += [NatsSide] if nats else []
        for _ in range(self.plan.rounds):
            for make in makers:
                await self._turn(make(self._fresh()))
        for ours, peers in (
            ("sync=power", ["redis-always"] if redis else []),
            ("sync=process", [*(["redis-everysec"] if redis else []), *(["nats"] if nats else [])]),
        ):
            self._report(ours, peers)
        await from_a_subscription(self.report, self._fresh(), self.plan.messages)
        await self._members_come_and_go()
        await self._memory(redis=redis, nats=nats)

    async def _turn(self, side: TopicSide) -> None:
        """Everything with one server."""
        tell(side.name)
        try:
            await side.open()
            for case, (batch, single, at_once) in PUBLISHES.items():
                side.prepare(batch, single=single)
                await self._publish(side, case, batch, at_once)
            if isinstance(side, NodeSide):
                await self._publish_by_library(side)
            await self._latency(side)
            side.prepare(1_000, single=False)
            for count in MEMBERS:
                await self._end_to_end(side, count)
            await self._backlog(side)
            await side.close()
        finally:
            side.kill()

    # --- publishing -------------------------------------------------------------------------------

    async def _publish(self, side: TopicSide, case: str, batch: int, at_once: int) -> None:
        done = 0
        # What is sent first meets cold caches; it does not count.
        await asyncio.wait_for(asyncio.gather(*(side.publish() for _ in range(at_once))), HANG_S)
        cpu, started = cpu_seconds(side.pid), time.perf_counter()
        end = started + self.plan.seconds

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() < end:
                await side.publish()
                done += batch

        await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(at_once))), HANG_S)
        took = time.perf_counter() - started
        self.figures.note(side.name, case, "publish_per_s", done / took)
        self._note_cpu(side, case, cpu, done)

    async def _publish_by_library(self, side: NodeSide) -> None:
        """`publish_all`, as an application calls it, the making of the records included."""
        done, body = 0, b"x" * 100
        started = time.perf_counter()
        end = started + self.plan.seconds

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() < end:
                records = [moorline.record(NAMES[at % TOPICS], body) for at in range(1_000)]
                await side.moor.publish_all(records)
                done += len(records)

        await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(AT_ONCE))), HANG_S)
        took = time.perf_counter() - started
        self.figures.note(side.name, "batched library", "publish_per_s", done / took)

    # --- delivering -------------------------------------------------------------------------------

    async def _latency(self, side: TopicSide) -> None:
        """From before a publish leaves to when a member has it, both in this process."""
        times: list[int] = []
        expected = round(self.plan.latency_s * LATENCY_PER_S)
        enough = asyncio.Event()

        def see(_topic: int, stamp: int) -> None:
            times.append(now_ns() - stamp)
            if len(times) >= expected:
                enough.set()

        await side.make_group("latency")
        listener = asyncio.create_task(
            member(side.kind, side.address, "latency", "m0", Ears(lambda _: None, see))
        )
        try:
            while not times:  # until it has joined
                if listener.done():
                    listener.result()
                await side.publish_each([0], stamped(now_ns()))
                await asyncio.sleep(0.01)
            times.clear()
            sent, started = 0, time.perf_counter()
            answers = []
            while sent < expected:
                due = (time.perf_counter() - started) * LATENCY_PER_S
                while sent < min(due, expected):
                    answers.append(side.publish_each([sent % TOPICS], stamped(now_ns())))
                    sent += 1
                await asyncio.sleep(0.001)
            await asyncio.wait_for(asyncio.gather(*answers), HANG_S)
            await asyncio.wait_for(enough.wait(), HANG_S)
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
        await side.end_group("latency")
        cuts = statistics.quantiles(times, n=100)
        case = f"latency {LATENCY_PER_S}/s"
        for metric, place in (("p50_ms", 49), ("p99_ms", 98)):
            self.figures.note(side.name, case, metric, cuts[place] / 1e6)

    async def _end_to_end(self, side: TopicSide, members: int) -> None:
        """Published, delivered and acknowledged at the same time."""
        group, case = f"flow{members}", f"end to end {members}"
        await side.make_group(group)
        crew = Crew(side, group, self.folder)
        try:
            crew.add(members)
            crew.join()
            published = 0
            while not all(crew.counts()):  # until all have a part of it
                await side.publish()
                published += 1_000
                await asyncio.sleep(0.02)
            await crew.until_counted(published)
            cpu, started = cpu_seconds(side.pid), time.perf_counter()
            count = self.plan.messages // 1_000

            async def worker() -> None:
                nonlocal count, published
                while count > 0:
                    count -= 1
                    published += 1_000
                    await side.publish()

            await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(AT_ONCE))), HANG_S)
            await crew.until_counted(published)
            await self._settled(side, group)
            took = time.perf_counter() - started
            self.figures.note(side.name, case, "deliver_per_s", self.plan.messages / took)
            self._note_cpu(side, case, cpu, self.plan.messages)
        finally:
            crew.close()
        await side.end_group(group)

    async def _backlog(self, side: TopicSide) -> None:
        """What was published before anybody joined, from the first delivery to the last ack."""
        kinds = [(f"backlog {count}", count, side.kind) for count in MEMBERS]
        if isinstance(side, NodeSide):
            kinds += [(f"backlog {count} by message", count, "node single") for count in MEMBERS]
        for case, _, _ in kinds:
            await side.make_group(_word(case))
        waiting = list(range(self.plan.messages // 1_000))

        async def worker() -> None:
            while waiting:
                waiting.pop()
                await side.publish()

        await asyncio.wait_for(asyncio.gather(*(worker() for _ in range(AT_ONCE))), HANG_S)
        for case, members, kind in kinds:
            crew = Crew(side, _word(case), self.folder, kind)
            try:
                crew.add(members)
                cpu = cpu_seconds(side.pid)
                crew.join()
                await crew.until_counted(self.plan.messages)
                await self._settled(side, _word(case))
                took = (now_ns() - crew.first_ns()) / 1e9
                self.figures.note(side.name, case, "deliver_per_s", self.plan.messages / took)
                self._note_cpu(side, case, cpu, self.plan.messages)
            finally:
                crew.close()
            await side.end_group(_word(case))

    async def _settled(self, side: TopicSide, group: str) -> None:
        end = time.monotonic() + HANG_S
        while await side.unsettled(group):
            if time.monotonic() > end:
                raise TimeoutError(f"{side.name} does not know of all acknowledgements")
            await asyncio.sleep(0.005)

    def _note_cpu(self, side: TopicSide, case: str, before: float, messages: int) -> None:
        # The system counts in steps; less than one of them is not nothing.
        used_s = max(cpu_seconds(side.pid) - before, 1 / TICKS)
        self.figures.note(side.name, case, "server_cpu_s_per_million", used_s / messages * 1e6)

    # --- members ----------------------------------------------------------------------------------

    async def _members_come_and_go(self) -> None:
        """How long until all topics flow again after a member was killed, and after one has joined."""
        tell("members come and go")
        side = NodeSide(self._fresh(), "power")
        failover, join = [], []
        crew = Crew(side, "stamps", self.folder)
        flow: asyncio.Task[None] | None = None
        try:
            await side.open()
            await side.make_group("stamps")
            crew.add(4 + self.plan.failures)
            crew.join(0, 1, 2, 3)
            flow = asyncio.create_task(_flow(side))
            await crew.until(lambda: all(crew.counts()[:4]))
            for turn in range(self.plan.failures):
                killed = now_ns()
                crew.kill(turn)
                await crew.until_newer(killed)
                failover.append((now_ns() - killed) / 1e9)
                fresh, joined = 4 + turn, now_ns()
                crew.join(fresh)
                await crew.until_newer(await crew.until_first(fresh))
                join.append((now_ns() - joined) / 1e9)
        finally:
            if flow is not None:
                flow.cancel()
                await asyncio.gather(flow, return_exceptions=True)
            crew.close()
            side.kill()
        self.report.row("4 members", "failover_s", statistics.median(failover), "s")
        self.report.row("3 members and 1", "join_s", statistics.median(join), "s")

    # --- memory -----------------------------------------------------------------------------------

    async def _memory(self, *, redis: bool, nats: bool) -> None:
        """What an idle stream takes: with many streams less with few, for each of the difference."""
        tell("memory")
        sizes = []
        for shards in (FEW_SHARDS, MANY_SHARDS):
            with BenchNode(self._fresh(), [f"--set=streams.shards={shards}"]) as node:
                sizes.append(rss_mib(node.pid))
        peers = []
        if redis:
            peers.append(("redis-everysec", await self._redis_streams()))
        if nats:
            peers.append(("nats", await self._nats_streams()))
        streams = MANY_SHARDS - FEW_SHARDS
        each = (sizes[1] - sizes[0]) / streams * MIB
        self.report.row(f"idle {FEW_SHARDS} streams", "rss_mib", sizes[0], "MiB")
        self.report.row(f"idle {MANY_SHARDS} streams", "rss_mib", sizes[1], "MiB")
        for name, (few, many) in peers:
            value = (many - few) / streams * MIB
            case = f"idle {MANY_SHARDS} streams {name}"
            self.report.row(case, "bytes_per_stream", each, "B", peer=name, peer_value=value)
        if not peers:
            self.report.row(f"idle {MANY_SHARDS} streams", "bytes_per_stream", each, "B")

    async def _redis_streams(self) -> tuple[float, float]:
        server = Redis(self._fresh(), "everysec")
        try:
            await server.ready()
            few = rss_mib(server.process.pid)
            await server.make_queues(MANY_SHARDS - FEW_SHARDS)
            many = rss_mib(server.process.pid)
            await server.close()
        finally:
            server.kill()
        return few, many

    async def _nats_streams(self) -> tuple[float, float]:
        side = NatsSide(self._fresh())
        try:
            await side.open()
            few = rss_mib(side.pid)
            for number in range(MANY_SHARDS - FEW_SHARDS):
                await side.make_stream(f"S{number}", f"s.{number}")
            many = rss_mib(side.pid)
            await side.close()
        finally:
            side.kill()
        return few, many

    # --- inside -----------------------------------------------------------------------------------

    def _report(self, ours: str, peers: list[str]) -> None:
        for key in self.figures.keys_of(ours):
            case, metric = key
            value = self.figures.median(ours, key)
            assert value is not None
            found = [(peer, self.figures.median(peer, key)) for peer in peers]
            known = [(peer, figure) for peer, figure in found if figure is not None]
            for peer, figure in known:
                name = f"{case} {peer}"
                self.report.row(name, metric, value, _unit(metric), peer=peer, peer_value=figure)
            if not known:
                self.report.row(f"{case} {ours}", metric, value, _unit(metric))

    def _fresh(self) -> Path:
        self._servers += 1
        folder = self.folder / f"server-{self._servers}"
        folder.mkdir()
        return folder


async def _flow(side: TopicSide) -> None:
    """A message to each topic, again and again."""
    while True:
        await side.publish_each(list(range(TOPICS)), stamped(now_ns()))
        await asyncio.sleep(FLOW_S)


def _unit(metric: str) -> str:
    return {"p50_ms": "ms", "p99_ms": "ms", "server_cpu_s_per_million": "cpu_s"}.get(metric, "1/s")


def _word(case: str) -> str:
    return case.replace(" ", "-")


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    await Bench(QUICK if is_quick else FULL, report, folder).run()


if __name__ == "__main__":
    run_bench("topics", __doc__, run)
