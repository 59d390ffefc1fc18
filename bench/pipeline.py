"""Spark on topics and sets of ids, each beside what Spark does on its own, in one session.

    python -m bench.pipeline [--quick] [--json]

CPU seconds are those of all processes: this driver, Java, Python workers, and the node. Reads are measured
in turns, after a turn that counts for neither, and the turn with the least CPU is taken: the machine is
shared, and Java compiles what it runs for some seconds.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil  # type: ignore[import-untyped]  # it has no types of its own

import moorline
from bench import one_topic
from bench.node import BenchNode
from bench.report import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = 16
KEYS = 1_000
BODY_BYTES = 100
ID_BYTES = 24
DIFFERENCES = 1_000
FIRST_MESSAGES = 1_000
"""What is there when the session starts."""
ONE_TOPIC_SHARE = 2
"""So much fewer messages are spread over a hundred topics than are read as a whole."""
ROWS_SHARE = 10
"""The writer by rows gets a tenth: it takes ten times as long, and only its rate counts."""
PUBLISH_BATCH = 2_000
PUBLISHES_AT_ONCE = 4
CORES = len(os.sched_getaffinity(0))


class Plan(NamedTuple):
    """How much is done; `--quick` does the same with less."""

    messages: int
    generation_bytes: int
    ids: int
    """Of one set; the digest is of several copies of it."""
    copies: int
    turns: int
    memory: str
    is_short: bool
    """Java compiles quickly and not well: less time, and smaller figures on both sides."""


FULL = Plan(5_000_000, 16 << 20, 20_000_000, 5, 4, "6g", is_short=False)
QUICK = Plan(500_000, 2 << 20, 1_000_000, 10, 1, "2g", is_short=True)


class Cost(NamedTuple):
    """CPU seconds of all processes, and seconds that passed. The least CPU is the least."""

    cpu_s: float
    wall_s: float


class Ledger:
    """CPU time of all processes below this one, those that have ended included.

    The kernel does not keep it for us: Spark's Python daemon ignores SIGCHLD, so what its workers used is
    gone with them, and a sum over the living goes back. A look five times a second keeps each one's last
    figure; what a process uses behind the last look at it is lost.
    """

    LOOK_S = 0.2

    def __init__(self) -> None:
        self._used_s: dict[tuple[int, float], float] = {}
        """By process id and start, because ids come again."""
        self._lock = threading.Lock()
        self._looking_s = 0.0
        """What the looks themselves took, which is nobody's work."""
        threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        while True:
            self.total_s()
            self._looking_s = time.thread_time()
            time.sleep(self.LOOK_S)

    def total_s(self) -> float:
        here = psutil.Process()
        with self._lock:
            for process in (here, *here.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    known = process.pid, process.create_time()
                    self._used_s[known] = times.user + times.system
            return sum(self._used_s.values()) - self._looking_s


LEDGER = Ledger()


def measured(action: Callable[[], object]) -> Cost:
    before_s, started = LEDGER.total_s(), time.perf_counter()
    action()
    wall_s = time.perf_counter() - started
    cpu_s = LEDGER.total_s() - before_s
    assert cpu_s > 0, "CPU time never goes back"
    return Cost(cpu_s, wall_s)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Bench:
    """One run: a node with messages, a session, and files beside them."""

    def __init__(self, plan: Plan, report: Report, folder: Path, node: BenchNode) -> None:
        self._plan = plan
        self._report = report
        self._folder = folder
        self._node = node
        self._data = str(node.data)
        self._spark: SparkSession | None = None

    def run(self) -> None:
        started = time.perf_counter()
        for case in (
            self._cold_start,
            self._publish,
            self._read,
            self._archive,
            self._write,
            self._digest_and_diff,
            self._read_one_topic,
            self._stream_one_topic,
        ):
            case()
            name = case.__name__.strip("_").replace("_", " ")
            tell(f"{time.perf_counter() - started:6.1f} s: {name}")

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    # --- topics -----------------------------------------------------------------------------------

    def _cold_start(self) -> None:
        """From nothing to a first result: Java, the session, the source, workers."""
        asyncio.run(publish(self._node.address, 0, FIRST_MESSAGES))

        def first_result() -> None:
            import moorline.spark
            from moorline.spark.session import SHORT_JOB

            config = {"spark.driver.memory": self._plan.memory}
            if self._plan.is_short:
                config |= SHORT_JOB
            self._spark = moorline.spark.session(app_name="bench", config=config)
            assert self._topics(path=self._data).count() == FIRST_MESSAGES

        cost = measured(first_result)
        self._report.row("cold start", "wall_s", cost.wall_s, "s")
        self._report.row("cold start", "cpu_s", cost.cpu_s, "s")

    def _publish(self) -> None:
        asyncio.run(publish(self._node.address, FIRST_MESSAGES, self._plan.messages))

    @property
    def _session(self) -> "SparkSession":
        assert self._spark is not None, "the first case makes it"
        return self._spark

    def _topics(self, schema: str = "", **where: str) -> "DataFrame":
        reader = self._session.read.format("moorline").options(topics="#", **where)
        return (reader.schema(schema) if schema else reader).load()

    def _read(self) -> None:
        """All columns of all messages into nothing, against the same rows in Parquet."""
        parquet = str(self._folder / "rows")
        # The turn that counts for neither; it is also where the peer's files come from.
        self._topics(path=self._data).write.parquet(parquet)
        nothing(self._session.read.parquet(parquet))
        narrow = "offset long, timestamp timestamp, value binary"
        names = [column.split()[0] for column in narrow.split(", ")]
        ours, theirs, asked, ours_narrow, theirs_narrow = self._in_turns(
            lambda: nothing(self._topics(path=self._data)),
            lambda: nothing(self._session.read.parquet(parquet)),
            lambda: nothing(self._topics(address=self._node.address)),
            lambda: nothing(self._topics(narrow, path=self._data)),
            lambda: nothing(self._session.read.parquet(parquet).select(names)),
        )
        count = self._plan.messages
        self._rates("read topic", ours, count, "messages", "parquet", theirs)
        self._rates("read node", asked, count, "messages", "parquet", theirs)
        self._rates("read narrow", ours_narrow, count, "messages", "parquet", theirs_narrow)

    def _read_one_topic(self) -> None:
        """One topic of a hundred from the folder, beside all of them; what they share is begun before."""
        count = self._plan.messages // ONE_TOPIC_SHARE
        asyncio.run(one_topic.publish(self._node.address, count))
        asyncio.run(one_topic.sealed(self._node.address))
        reader = self._session.read.format("moorline").options(path=self._data)
        one, every = self._in_turns(
            lambda: nothing(reader.option("topics", one_topic.ONE).load()),
            lambda: nothing(reader.option("topics", one_topic.ALL).load()),
        )
        self._report.row(
            one_topic.CASE, "cpu_s", one.cpu_s, "cpu_s", peer="all topics", peer_value=every.cpu_s
        )

    def _stream_one_topic(self) -> None:
        """The same topic by a query whose batches are limited, beside one that reads all in as many."""
        count = self._plan.messages // ONE_TOPIC_SHARE
        batches: dict[str, int] = {}

        def until_it_has_all(name: str, topics: str, limit: int) -> None:
            frame = (
                self._session.readStream.format("moorline")
                .options(path=self._data, topics=topics, startingOffsets="earliest")
                .option("maxOffsetsPerTrigger", limit)
                .load()
            )
            # A checkpoint of its own: each turn reads from the beginning.
            state = tempfile.mkdtemp(dir=self._folder)
            writer = frame.writeStream.format("noop").option("checkpointLocation", state)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            batches[name] = len([one for one in query.recentProgress if one.numInputRows])

        one, every = self._in_turns(
            lambda: until_it_has_all("one", one_topic.ONE, one_topic.LIMIT),
            lambda: until_it_has_all("all", one_topic.ALL, one_topic.LIMIT * one_topic.TOPICS),
        )
        case = f"{one_topic.CASE} in batches of {one_topic.LIMIT:,}"
        least = -(-count // one_topic.TOPICS // one_topic.LIMIT)
        self._report.row(
            case, "batches", batches["one"], "batches", peer="as few as can be", peer_value=least
        )
        self._report.row(
            case, "cpu_s", one.cpu_s, "cpu_s", peer="all topics", peer_value=every.cpu_s
        )

    def _archive(self) -> None:
        from moorline.spark.jobs.archive import ArchiveOptions, archive
        from moorline.spark.jobs.node_side import ask
        from moorline.spark.jobs.verify import VerifyOptions, verify

        where, source = str(self._folder / "archive"), {"path": self._data}
        options = ArchiveOptions(where, source, compact=False)
        counts: list[int] = []

        def archive_all() -> None:
            counts.append(archive(self._session, options, lambda: ask(source).seals).messages)

        def verify_all() -> None:
            report = verify(self._session, VerifyOptions(where, source), ask(source))
            assert report.is_equal, "the archive is not what the node has"
            counts.append(report.messages)

        self._rates("archive", measured(archive_all), counts[-1], "messages")
        cost = measured(verify_all)
        if counts[-1]:
            self._rates("verify", cost, counts[-1], "messages")

    def _write(self) -> None:
        """From Parquet into topics of the node, durable there and published once; against more Parquet."""
        rows = self._session.read.parquet(str(self._folder / "rows"))
        chosen = rows.selectExpr("concat('copy/', topic) as topic", "key", "value")
        ours = measured(
            lambda: (
                chosen.write.format("moorline")
                .mode("append")
                .option("address", self._node.address)
                .save()
            )
        )
        theirs = measured(lambda: chosen.write.parquet(str(self._folder / "copy")))
        self._rates("write topic", ours, self._plan.messages, "messages", "parquet", theirs)
        count = self._plan.messages // ROWS_SHARE
        one_by_one = self._by_rows(chosen.limit(count).repartition(CORES))
        self._rates(
            "write topic rows",
            Cost(ours.cpu_s / ROWS_SHARE, ours.wall_s / ROWS_SHARE),
            count,
            "messages",
            "row writer",
            one_by_one,
        )

    def _by_rows(self, chosen: "DataFrame") -> Cost:
        """The same write by the rows that Spark hands to a Python writer one by one."""
        from bench.row_writer import RowSource

        self._session.dataSource.register(RowSource)
        chosen = chosen.persist()
        nothing(chosen)
        rows = chosen.write.format("bench_rows").mode("append")
        return measured(rows.option("address", self._node.address).save)

    # --- ids --------------------------------------------------------------------------------------

    def _digest_and_diff(self) -> None:
        from moorline.spark.id_sets import Side
        from moorline.spark.jobs.diff import diff, digest_of

        plan, session = self._plan, self._session
        left, right = self._folder / "left", self._folder / "right"
        write_ids(left, plan.ids, 0)
        write_ids(right, plan.ids, DIFFERENCES // 2)
        copies = self._folder / "copies"
        copies.mkdir()
        for copy in range(plan.copies):
            (copies / f"{copy}.parquet").hardlink_to(left / "ids.parquet")
        side = Side.of(f"parquet:{copies}")
        (cost,) = self._in_turns(lambda: digest_of(session, side, tasks=2 * CORES))
        self._rates("digest", cost, plan.ids * plan.copies, "ids")

        def by_digests() -> None:
            one, other = Side.of(f"parquet:{left}"), Side.of(f"parquet:{right}")
            found = diff(session, one, other, tasks=2 * CORES, limit=0)
            assert found.only_left + found.only_right == DIFFERENCES

        def by_joins() -> None:
            one, other = (session.read.parquet(str(path)) for path in (left, right))
            found = one.join(other, "id", "left_anti").count()
            found += other.join(one, "id", "left_anti").count()
            assert found == DIFFERENCES

        ours, theirs = measured(by_digests), measured(by_joins)
        two = "two anti-joins"
        for metric, mine, other in (
            ("wall_s", ours.wall_s, theirs.wall_s),
            ("cpu_s", ours.cpu_s, theirs.cpu_s),
        ):
            self._report.row("diff", metric, mine, "s", peer=two, peer_value=other)

    # --- figures ----------------------------------------------------------------------------------

    def _in_turns(self, *actions: Callable[[], object]) -> list[Cost]:
        turns = [[measured(action) for action in actions] for _ in range(self._plan.turns)]
        return [min(costs) for costs in zip(*turns, strict=True)]

    def _rates(
        self,
        case: str,
        cost: Cost,
        count: int,
        what: str,
        peer: str = "",
        theirs: Cost | None = None,
    ) -> None:
        for metric, mine, other in (
            (f"{what}_per_cpu_s", cost.cpu_s, theirs.cpu_s if theirs else 1.0),
            (f"{what}_per_s", cost.wall_s, theirs.wall_s if theirs else 1.0),
        ):
            self._report.row(case, metric, count / mine, "1/s", peer=peer, peer_value=count / other)


def nothing(frame: "DataFrame") -> None:
    """Every row of a frame is made, and goes nowhere."""
    frame.write.format("noop").mode("overwrite").save()


async def publish(address: str, first: int, upto: int) -> None:
    """Bodies that hardly compress, and do not overlap: Parquet would else read less than we do."""
    pool = os.urandom(1 << 20)
    starts = iter(range(first, upto, PUBLISH_BATCH))
    async with moorline.connect(address) as moor:

        async def publisher() -> None:
            for start in starts:
                records = []
                for number in range(start, min(start + PUBLISH_BATCH, upto)):
                    at = number * 107 % (len(pool) - BODY_BYTES)
                    body, key = pool[at : at + BODY_BYTES], b"%d" % (number % KEYS)
                    records.append(moorline.record(f"bench/{number % TOPICS}", body, key=key))
                await moor.publish_all(records)

        await asyncio.gather(*(publisher() for _ in range(PUBLISHES_AT_ONCE)))


def write_ids(folder: Path, count: int, other: int) -> None:
    """The same ids in every set, but for the first `other`, which are in no other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    chance = np.random.default_rng(7)
    schema = pa.schema([("id", pa.binary())])
    rows_max = 1_000_000
    with pq.ParquetWriter(folder / "ids.parquet", schema, compression="zstd") as writer:
        for start in range(0, count, rows_max):
            rows = min(rows_max, count - start)
            octets = chance.integers(0, 256, (rows, ID_BYTES), dtype=np.uint8)
            if not start:
                octets[:other, 0] ^= 0xFF
            edges = np.arange(0, (rows + 1) * ID_BYTES, ID_BYTES, dtype=np.int32)
            buffers = [None, pa.py_buffer(edges), pa.py_buffer(octets)]
            ids = pa.Array.from_buffers(pa.binary(), rows, buffers)
            writer.write_table(pa.table([ids], schema), row_group_size=rows_max // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="done within 50 s")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    flags = [f"--set=streams.generation_bytes_max={plan.generation_bytes}"]
    flags += ["--set=streams.sync=process"]
    with (
        tempfile.TemporaryDirectory(prefix="bench-pipeline-") as name,
        BenchNode(Path(name), flags) as node,
        Report("pipeline", as_json=options.json) as report,
    ):
        bench = Bench(plan, report, Path(name), node)
        try:
            bench.run()
        finally:
            bench.close()


if __name__ == "__main__":
    main()
