"""Room: spark. `run FILE`: a user's own pipeline, functions from a source to a sink in Spark's DataFrame API.

    from moorline.spark import flow

    @flow(source={"topics": "orders/#"}, sink={"topic": "orders-copy"}, one_to_one=True)
    def copy(orders):
        return orders.select("key", "value")

Source and sink are options of Spark's; `format` is `moorline` unless it is named. Each flow is one
streaming query with a checkpoint. One that is declared `one_to_one` is verified when it has caught up: the
function over the same source messages, as a batch, must give what the sink has; as many, and the same.
"""

import contextlib
import runpy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moorline.errors import ConfigError, ConnectionLost, DriftFound
from moorline.spark.jobs.failures import JavaGone, explained, spark_errors
from moorline.spark.jobs.flow_errors import of_flow, place_in, said_by
from moorline.spark.jobs.patience import Patience, Told, now_ms, silent, wait_for_nodes
from moorline.spark.jobs.watching import LOOK_S, Seen, Stopping, never, nobody, rows_of, wait
from moorline.spark.options import Endpoint, endpoint_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = Mapping[str, str]

MARK = "__moorline_flow__"


class Flow(msgspec.Struct, frozen=True):
    """A function from a source to a sink."""

    name: str
    function: Callable[["DataFrame"], "DataFrame"]
    source: dict[str, str]
    sink: dict[str, str]
    checkpoint: str
    one_to_one: bool


class FlowReport(msgspec.Struct, frozen=True):
    """What a flow did in this run; `verified` is None where there was nothing to verify.

    `state` is DONE, FAILED (what it did until then counts) or NOT_BEGUN, because another one failed first.
    """

    name: str
    messages: int
    batches: int
    verified: bool | None = None
    source_count: int | None = None
    sink_count: int | None = None
    digest: str | None = None
    state: str = "DONE"
    over: str = ""
    """Over what the proof is, if that is not all that is stored."""


class FlowsOptions(msgspec.Struct, frozen=True):
    """A file of flows, and what holds for all of them."""

    file: str
    names: list[str] = []
    endpoint: dict[str, str] = {}
    checkpoints: str = ""
    trigger: str = ""
    verify: bool = True

    @property
    def path(self) -> str:
        """As tracebacks name it."""
        return str(Path(self.file))


def flow(
    *,
    source: Options,
    sink: Options,
    checkpoint: str = "",
    one_to_one: bool = False,
    name: str = "",
) -> Callable[[Callable[["DataFrame"], "DataFrame"]], Callable[["DataFrame"], "DataFrame"]]:
    """Marks a function as a flow; without a `checkpoint` it has one beside the file, by its name."""

    def marked(
        function: Callable[["DataFrame"], "DataFrame"],
    ) -> Callable[["DataFrame"], "DataFrame"]:
        known = name or function.__name__
        for what, options in (("source", source), ("sink", sink)):
            for option, value in options.items():
                if not isinstance(value, str):
                    raise ConfigError(
                        f"flow {known}: {what}: {option}={value!r}: options are texts, as in Spark"
                    )
        made = Flow(known, function, dict(source), dict(sink), checkpoint, one_to_one)
        setattr(function, MARK, made)
        return function

    return marked


def flows_in(file: str, names: list[str] | None = None) -> list[Flow]:
    """The flows of a file, in its order; those of the names, if there are any."""
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"{file} is not a file")
    try:
        # Under a name that nobody can import: so Spark sends the functions themselves to its workers.
        found = runpy.run_path(str(path), run_name="__moorline_flows__")
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        where = place_in(error, str(path))
        what = f"{file}: {said_by(error)}"
        raise ConfigError(f"{what} ({where})" if where else what) from error
    flows = [made for value in found.values() if (made := getattr(value, MARK, None)) is not None]
    known = [one.name for one in flows]
    twice = sorted({name for name in known if known.count(name) > 1})
    if twice:
        raise ConfigError(f"{file}: two flows are named {twice[0]}: give one another name=")
    if not flows:
        raise ConfigError(f"{file} has no flows: mark functions with @moorline.spark.flow(…)")
    for name in names or []:
        if name not in known:
            raise ConfigError(f"{file} has no flow {name!r}: there are {', '.join(known)}")
    return [one for one in flows if not names or one.name in names]


def run_flows(
    spark: "SparkSession",
    options: FlowsOptions,
    seen: Seen = nobody,
    stopping: Stopping = never,
    reports: list[FlowReport] | None = None,
    told: Told = silent,
) -> list[FlowReport]:
    """One flow after the other until each has caught up; or all at once, until `stopping` or an interrupt.

    `reports` has a report of every flow also where one of them raises. All at once, a node that is away is
    waited for, and `told` hears of it.
    """
    flows = flows_in(options.file, options.names)
    reports = [] if reports is None else reports
    if options.trigger:
        _continuously(_Flows(spark, options, flows, told), seen, stopping, reports)
        return reports
    try:
        for one in flows:
            _once(spark, options, one, seen, reports)
    finally:
        for one in flows[len(reports) :]:
            reports.append(FlowReport(one.name, 0, 0, state="NOT_BEGUN"))
    return reports


def _once(
    spark: "SparkSession",
    options: FlowsOptions,
    one: Flow,
    seen: Seen,
    reports: list[FlowReport],
) -> None:
    """Its report is the last one then, whatever happened."""
    query: Any = None
    run, batches = Run(), dict[int, int]()
    report = FlowReport(one.name, 0, 0, state="FAILED")
    try:
        with of_flow(one.name, options.path):
            checkpoint = checkpoint_of(options, one)
            query = _started(spark, options, one, checkpoint)
            wait(query, seen, lambda: _count(query, batches), run.hear)
            _count(query, batches)
            report = _report(one, batches, "DONE")
            if one.one_to_one and options.verify and run.batches:
                from moorline.spark.jobs.flow_proof import prove

                report = prove(spark, options.endpoint, one, checkpoint, str(query.id), run, report)
    except BaseException:
        # A query that failed has still told of the batches before.
        with contextlib.suppress(Exception):
            _count(query, batches)
        report = _report(one, batches, "FAILED")
        raise
    finally:
        reports.append(report)


def _report(one: Flow, batches: Mapping[int, int], state: str) -> FlowReport:
    count = sum(1 for rows in batches.values() if rows)
    return FlowReport(one.name, sum(batches.values()), count, state=state)


class Run:
    """From where to where a run went, as Spark tells it batch by batch."""

    def __init__(self) -> None:
        self.start: dict[str, int] = {}
        self.end: dict[str, int] = {}
        self._first = -1
        self._last = -1

    def hear(self, batch: int, start: dict[str, int], end: dict[str, int], rows: int) -> None:
        if not rows and not end:
            return
        if self._first < 0 or batch < self._first:
            self._first, self.start = batch, start
        if batch >= self._last:
            self._last, self.end = batch, end

    @property
    def batches(self) -> int:
        return self._last - self._first + 1 if self._first >= 0 else 0

    @property
    def numbers(self) -> tuple[int, int]:
        """The first batch, and the one behind the last."""
        return self._first, self._last + 1


def _continuously(
    running: "_Flows", seen: Seen, stopping: Stopping, reports: list[FlowReport]
) -> None:
    try:
        with explained():
            running.follow(seen, stopping)
    except JavaGone:
        # Who ends all processes at once ends Java too; what was heard of until then is told.
        if not stopping():
            raise
    finally:
        reports += running.reports()


class _Flows:
    """Flows side by side: their queries, the rows of their batches, and how they are."""

    def __init__(
        self, spark: "SparkSession", options: FlowsOptions, flows: list[Flow], told: Told
    ) -> None:
        self._spark = spark
        self._options = options
        self._flows = flows
        self._told = told
        self._queries: dict[str, Any] = {}
        self._batches: dict[str, dict[int, int]] = {one.name: {} for one in flows}
        self._states = {one.name: "NOT_BEGUN" for one in flows}
        self._patience = Patience(now_ms())

    def reports(self) -> list[FlowReport]:
        return [
            _report(one, self._batches[one.name], self._states[one.name]) for one in self._flows
        ]

    def follow(self, seen: Seen, stopping: Stopping) -> None:
        """Until they are to stop, or one of them fails, which ends the others."""
        try:
            for one in self._flows:
                self._begin(one)
            while not stopping():
                for one in self._flows:
                    self._look(one, stopping)
                seen(sum(sum(batches.values()) for batches in self._batches.values()), 0)
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            pass
        finally:
            self._stop()
        for one in self._flows:
            self._check(one)

    def _begin(self, one: Flow) -> None:
        self._states[one.name] = "FAILED"
        with of_flow(one.name, self._options.path):
            checkpoint = checkpoint_of(self._options, one)
            self._queries[one.name] = _started(self._spark, self._options, one, checkpoint)
        self._states[one.name] = "DONE"

    def _look(self, one: Flow, stopping: Stopping) -> None:
        """Counts, and begins a query again whose node was away."""
        query = self._queries.get(one.name)
        if query is None:
            return
        _count(query, self._batches[one.name])
        if query.isActive:
            return
        try:
            self._check(one)
        except ConnectionLost as error:
            nodes = nodes_of([one], self._options.endpoint)
            wait_for_nodes(nodes, error, self._patience, self._told, stopping)
            if stopping():
                # Told to end while its node was away: its next run goes on where this one was.
                del self._queries[one.name]
                self._states[one.name] = "DONE"
            else:
                self._begin(one)

    def _check(self, one: Flow) -> None:
        """Raises what its query failed with; one that was stopped has no error."""
        query = self._queries.get(one.name)
        if query is None or query.isActive:
            return
        self._states[one.name] = "FAILED"
        with of_flow(one.name, self._options.path):
            query.awaitTermination()
        self._states[one.name] = "DONE"

    def _stop(self) -> None:
        for query in self._queries.values():
            if query.isActive:
                query.stop()
        for name, query in self._queries.items():
            with contextlib.suppress(*spark_errors()):
                _count(query, self._batches[name])


def _count(query: Any, batches: dict[int, int]) -> None:
    """Rows by batch: Spark remembers the last of them only, and we all."""
    for progress in query.recentProgress if query is not None else ():
        number = int(progress["batchId"])
        batches[number] = max(rows_of(progress), batches.get(number, 0))


def _started(spark: "SparkSession", options: FlowsOptions, one: Flow, checkpoint: str) -> Any:
    source = complete(one.source, options.endpoint)
    if source["format"] == "moorline":
        # Run once, a flow that began at the latest message would never do anything.
        source.setdefault("startingOffsets", "earliest")
    kind = source.pop("format")
    frame = one.function(spark.readStream.format(kind).options(**source).load())
    _check(frame)
    sink = complete(one.sink, options.endpoint)
    writer = (
        frame.writeStream.format(sink.pop("format"))
        .options(**sink)
        .option("checkpointLocation", checkpoint)
        .queryName(f"moor pipeline run {one.name}")
    )
    if options.trigger:
        return writer.trigger(processingTime=options.trigger).start()
    return writer.trigger(availableNow=True).start()


def complete(given: Options, endpoint: Options) -> dict[str, str]:
    """With the format, and with the node of the command line where a flow names none."""
    options = {"format": "moorline", **given}
    if options["format"] == "moorline" and not {"address", "path"} & set(options):
        options |= endpoint
    return options


def nodes_of(flows: list[Flow], endpoint: Options) -> list[dict[str, str]]:
    """How the nodes of all sources and sinks are reached, each once."""
    found: dict[Endpoint, dict[str, str]] = {}
    for one in flows:
        for given in (one.source, one.sink):
            options = complete(given, endpoint)
            if options["format"] == "moorline" and "path" not in options:
                found.setdefault(endpoint_of(options), options)
    return list(found.values())


def checkpoint_of(options: FlowsOptions, one: Flow) -> str:
    if one.checkpoint:
        return one.checkpoint
    base = options.checkpoints or str(Path(options.file).absolute().with_suffix(".checkpoints"))
    return f"{base}/{one.name}"


def _check(frame: Any) -> None:
    if not hasattr(frame, "writeStream"):
        raise ConfigError(f"it returned {type(frame).__name__}, not a DataFrame")
    if not frame.isStreaming:
        raise ConfigError(
            "what it returned does not come from its source: use the DataFrame it gets"
        )


def check(reports: list[FlowReport]) -> None:
    """Raises if a copy is not one."""
    for one in reports:
        if one.verified is False:
            raise DriftFound(
                f"flow {one.name}: {one.source_count} messages should be in the sink, "
                f"{one.sink_count} are; or their contents differ"
            )
