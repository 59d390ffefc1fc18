"""Room: metrics. How a room shows its figures on /metrics.

One registry a node, so that several nodes can live in one process. Figures are read when they are asked for;
what counts up is kept by its room as a plain number, which costs nothing on the hot path.
"""

from collections.abc import Callable, Generator, Iterable

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info
from prometheus_client.process_collector import ProcessCollector


class Metrics:
    """The registry of one node and the way to add to it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._sums: list[tuple[Gauge, Callable[[], Iterable[float | None]]]] = []
        self._info = Info("moorline_node", "What this node is.", registry=self.registry)

    def describe(self, *, node: str, version: str, roles: list[str]) -> None:
        self._info.info({"node": node, "version": version, "roles": ",".join(roles)})

    def watch(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(f"moorline_{name}", help_text, registry=self.registry).set_function(read)

    def add_up(
        self, name: str, help_text: str, parts: Callable[[], Iterable[float | None]]
    ) -> None:
        """A gauge that is the sum of very many parts; None is a step that has none. They are added up by
        `count`, which may be interrupted, and shown as they were then."""
        gauge = Gauge(f"moorline_{name}", help_text, registry=self.registry)
        self._sums.append((gauge, parts))

    def count(self) -> Generator[None, None, None]:
        """Adds up what takes long, step by step; before the figures are shown."""
        for gauge, parts in self._sums:
            total = 0.0
            for part in parts():
                total += part or 0.0
                yield
            gauge.set(total)

    def latency(self, name: str, help_text: str) -> Callable[[float], None]:
        """A histogram of seconds; call what is returned with each."""
        buckets = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
        return Histogram(
            f"moorline_{name}", help_text, buckets=buckets, registry=self.registry
        ).observe
