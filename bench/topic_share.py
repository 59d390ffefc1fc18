"""What it costs to read some topics of a hundred, and what that cost follows: the topics, or the shard.

    python -m bench.topic_share [--quick] [--json]

Three sizes of the same four shards, on two nodes with one catalog, of which the first has all messages:

    1x           every topic has as many
    others 2x    the ten topics that are read have as many, the other ninety twice as many
    all 2x       all have twice as many

Read are a topic that has one message (all that it costs is fixed), one, ten, and all hundred, in four ways:
by a subscription at the node that has them, by one at the other node, by Spark from the folder, and by Spark
from the node. CPU is user and system time of all processes that have a part in it: nodes and reader, or
nodes, driver, Java and its workers. A read is done several times, and the least is taken.

A cost that follows the topics is the same with twice as many of the others, and twice as high with twice as
many of all, beside what is fixed. The newest stream of each shard is not sealed, has no lists, and is read
whole in all of them.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import moorline
from bench.node import BenchNode
from bench.one_topic import sealed
from bench.report import Report, run_bench, tell
from moorline.catalog import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS, TEN = 100, 10
NONE, ONE, SOME, ALL = "hundred/b/none", "hundred/a/0", "hundred/a/#", "hundred/#"
BODY = b"x" * 100
BATCH = 5_000
WINDOW = 10_000
WITHIN_S = 120

Cpu = Callable[[], float]
"""CPU seconds until now, of all that have a part."""


class Plan(NamedTuple):
    """How much is done; `--quick` does the same with less."""

    per_topic: int
    generation_bytes: int
    turns: int
    repeats: int
    """Reads of one turn by a subscription: one alone is short."""
    is_short: bool


FULL = Plan(5_000, 2 << 20, 2, 3, is_short=False)
QUICK = Plan(2_000, 1 << 20, 1, 3, is_short=True)


class Size(NamedTuple):
    name: str
    of_ten: int
    of_others: int
    """Times what a topic has at first."""

    def messages(self, plan: Plan, topics: int) -> int:
        ten = min(topics, TEN)
        return plan.per_topic * (ten * self.of_ten + (topics - ten) * self.of_others)


SIZES = (Size("1x", 1, 1), Size("others 2x", 1, 2), Size("all 2x", 2, 2))
READS = (
    ("fixed part", NONE, 0),
    ("1 topic", ONE, 1),
    ("10 topics", SOME, TEN),
    ("100 topics", ALL, TOPICS),
)


def name_of(topic: int) -> str:
    return f"hundred/a/{topic}" if topic < TEN else f"hundred/b/{topic}"


async def publish(address: str, plan: Plan, size: Size) -> None:
    """In turn, so that every piece of a shard has every topic; and one message of a topic of its own."""
    names = [name_of(topic) for topic in range(TOPICS)]
    rounds = size.of_ten * plan.per_topic, size.of_others * plan.per_topic
    # The rarer ones are spread among the others.
    per_round = [(number * rounds[0] // rounds[1]) for number in range(rounds[1] + 1)]
    waiting: list[moorline.Record] = [moorline.record(NONE, BODY)]
    async with moorline.connect(address) as moor:
        for number in range(rounds[1]):
            first = 0 if per_round[number + 1] > per_round[number] else TEN
            waiting += [moorline.record(name, BODY) for name in names[first:]]
            if len(waiting) >= BATCH:
                await moor.publish_all(waiting)
                waiting = []
        await moor.publish_all(waiting)


async def read(address: str, filter_text: str, count: int) -> None:
    """So many messages from the beginning, without acknowledgements."""
    async with moorline.connect(address) as moor, asyncio.timeout(WITHIN_S):
        left = count
        async for _ in await moor.subscribe(filter_text, start="beginning", qos=0, window=WINDOW):
            left -= 1
            if not left:
                return


def cpu_of(pid: int) -> float:
    """Of a process with all threads that it ever had, by its CPU clock, which counts nanoseconds."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


class Costs:
    """The least that each read took, by way, read and size."""

    def __init__(self, report: Report, plan: Plan) -> None:
        self._report = report
        self._plan = plan
        self._found: dict[tuple[str, str, str], float] = {}

    async def measure(
        self, way: str, size: Size, cpu: Cpu, act: Callable[[str, int], Awaitable[None]]
    ) -> None:
        repeats = self._plan.repeats if way.startswith("subscription") else 1
        for name, filter_text, topics in READS:
            # Of the whole once is enough: it is long.
            times = 1 if topics == TOPICS else repeats
            count = max(1, size.messages(self._plan, topics)) + (topics == TOPICS)
            key = way, name, size.name
            for _ in range(self._plan.turns):
                before = cpu()
                for _ in range(times):
                    await act(filter_text, count)
                used = (cpu() - before) / times
                self._found[key] = min(used, self._found.get(key, used))
            tell(f"{way}, {name}, {size.name}: {self._found[key]:.4f} s")

    def tell(self) -> None:
        ways = dict.fromkeys(way for way, _, _ in self._found)
        for way in ways:
            for name, _, _ in READS:
                first = self._found[way, name, SIZES[0].name]
                for size in SIZES[1:]:
                    value = self._found[way, name, size.name]
                    metric, peer = f"cpu, {size.name}", SIZES[0].name
                    case = f"{way}, {name}"
                    self._report.row(case, metric, value, "cpu_s", peer=peer, peer_value=first)


class Spark:
    """A session, and what all its processes have used."""

    def __init__(self, *, is_short: bool) -> None:
        import moorline.spark
        from bench.pipeline import LEDGER
        from moorline.spark.session import SHORT_JOB

        self.cpu: Cpu = LEDGER.total_s
        config = {"spark.driver.memory": "2g", **(SHORT_JOB if is_short else {})}
        self._session: SparkSession = moorline.spark.session(app_name="bench", config=config)

    def read(self, topics: str, **where: str) -> None:
        frame = self._session.read.format("moorline").options(topics=topics, **where).load()
        frame.write.format("noop").mode("overwrite").save()

    def close(self) -> None:
        self._session.stop()


@contextlib.asynccontextmanager
async def two_nodes(folder: Path, plan: Plan) -> AsyncIterator[tuple[BenchNode, BenchNode]]:
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        flags = [f"--catalog={postgres.dsn}", "--set=streams.shards=4"]
        flags += ["--set=streams.sync=process"]
        flags += [f"--set=streams.generation_bytes_max={plan.generation_bytes}"]
        with (
            BenchNode(folder / "a", [*flags, "--node=a"]) as first,
            BenchNode(folder / "b", [*flags, "--node=b"]) as other,
        ):
            yield first, other


async def run(report: Report, folder: Path, is_quick: bool) -> None:
    plan = QUICK if is_quick else FULL
    costs = Costs(report, plan)
    spark = await asyncio.to_thread(Spark, is_short=plan.is_short)
    for size in SIZES:
        tell(f"{size.name}: {size.messages(plan, TOPICS):,} messages")
        at = folder / size.name.replace(" ", "-")
        at.mkdir()
        async with two_nodes(at, plan) as (first, other):
            await publish(first.address, plan, size)
            await sealed(first.address)
            nodes = first.pid, other.pid

            def cpu(nodes: tuple[int, int] = nodes) -> float:
                return time.process_time() + sum(map(cpu_of, nodes))

            for way, node in (("subscription", first), ("subscription elsewhere", other)):

                async def subscribed(text: str, count: int, at: str = node.address) -> None:
                    await read(at, text, count)

                await subscribed(ONE, 1)
                await costs.measure(way, size, cpu, subscribed)
            for way, where in (
                ("Spark, folder", {"path": str(first.data)}),
                ("Spark, node", {"address": first.address}),
            ):

                async def by_spark(text: str, _: int, where: dict[str, str] = where) -> None:
                    await asyncio.to_thread(spark.read, text, **where)

                # What comes first warms Java and its workers, and counts for nobody.
                await by_spark(ALL, 0)
                await costs.measure(way, size, spark.cpu, by_spark)
    await asyncio.to_thread(spark.close)
    costs.tell()


if __name__ == "__main__":
    run_bench("topic_share", __doc__, run)
