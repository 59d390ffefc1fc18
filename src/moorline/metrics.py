"""Room: metrics. How a room shows its figures on /metrics.

One registry a node, so that several nodes can live in one process. Figures are read when they are asked for;
what counts up is kept by its room as a plain number, which costs nothing on the hot path.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info
from prometheus_client.process_collector import ProcessCollector


class Metrics:
    """The registry of one node and the way to add to it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._info = Info("moorline_node", "What this node is.", registry=self.registry)

    def describe(self, *, node: str, version: str, roles: list[str]) -> None:
        self._info.info({"node": node, "version": version, "roles": ",".join(roles)})

    def watch(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(f"moorline_{name}", help_text, registry=self.registry).set_function(read)

    def latency(self, name: str, help_text: str) -> Callable[[float], None]:
        """A histogram of seconds; call what is returned with each."""
        buckets = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0)
        return Histogram(
            f"moorline_{name}", help_text, buckets=buckets, registry=self.registry
        ).observe
