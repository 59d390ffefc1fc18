"""Room: metrics. How a room shows its figures on /metrics.

One registry a node, so that several nodes can live in one process. Figures are read when they are asked for;
what counts up is kept by its room as a plain number, which costs nothing on the hot path.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
"""Where the buckets of a latency end."""


class Metrics:
    """The registry of one node and the way to add to it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._process = ProcessCollector(registry=self.registry)
        self._sums: list[tuple[Gauge, Callable[[], Iterable[float | None]]]] = []
        self._reads: dict[str, Callable[[], float]] = {}
        self._parts: dict[str, Callable[[], Iterable[float | None]]] = {}
        self._latencies: dict[str, _Latency] = {}
        self._info = Info("moorline_node", "What this node is.", registry=self.registry)

    def describe(self, *, node: str, version: str, roles: list[str]) -> None:
        self._info.info({"node": node, "version": version, "roles": ",".join(roles)})

    def watch(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        self._reads[name] = read
        Gauge(f"moorline_{name}", help_text, registry=self.registry).set_function(read)

    def add_up(
        self, name: str, help_text: str, parts: Callable[[], Iterable[float | None]]
    ) -> None:
        """A gauge that is the sum of very many parts; None is a step that has none. They are added up by
        `count`, which may be interrupted, and shown as they were then."""
        gauge = Gauge(f"moorline_{name}", help_text, registry=self.registry)
        self._sums.append((gauge, parts))
        self._parts[name] = parts

    def count(self) -> Generator[None, None, None]:
        """Adds up what takes long, step by step; before the figures are shown."""
        for gauge, parts in self._sums:
            total = 0.0
            for part in parts():
                total += part or 0.0
                yield
            gauge.set(total)

    def latency(self, name: str, help_text: str) -> Callable[[float], None]:
        """A histogram of seconds; call what is returned with each, on the loop."""
        latency = _Latency(f"moorline_{name}", help_text)
        self.registry.register(latency)
        self._latencies[name] = latency
        return latency.observe

    # --- single figures, for whoever looks at few of them often ----------------------------------------

    def now(self, name: str) -> float:
        """A figure of `watch`; 0 where this node has no such part."""
        read = self._reads.get(name)
        return float(read()) if read is not None else 0.0

    def sum_now(self, name: str) -> Generator[None, None, float]:
        """A figure of `add_up`, step by step."""
        total = 0.0
        parts = self._parts.get(name)
        for part in parts() if parts is not None else ():
            total += part or 0.0
            yield
        return total

    def buckets(self, name: str) -> list[tuple[float, float]]:
        """A histogram of `latency`: up to how many seconds, and how many were; each with those before."""
        latency = self._latencies.get(name)
        return latency.buckets() if latency is not None else []

    def memory_bytes(self) -> int:
        """What this process has in memory."""
        for metric in self._process.collect():
            if metric.name == "process_resident_memory_bytes":
                return int(metric.samples[0].value)
        return 0


class _Latency(Collector):
    """Counted as plain numbers, since a histogram of the library takes two locks each time."""

    def __init__(self, name: str, help_text: str) -> None:
        self._name, self._help_text = name, help_text
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._sum_s += seconds

    def buckets(self) -> list[tuple[float, float]]:
        ends = [*BUCKETS_S, float("inf")]
        return list(zip(ends, map(float, accumulate(self._counts)), strict=True))

    def collect(self) -> Iterable[Metric]:
        ends = [*map(str, BUCKETS_S), "+Inf"]
        buckets = [(end, count) for end, (_, count) in zip(ends, self.buckets(), strict=True)]
        yield HistogramMetricFamily(self._name, self._help_text, buckets, self._sum_s)
