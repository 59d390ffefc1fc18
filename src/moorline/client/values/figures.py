"""Room: client. Figures of a publisher, for programs that are watched as nodes are.

watch_publisher(metrics, publisher)      beside the figures of whatever else the program does
"""

from moorline.client.values.publisher import Publisher
from moorline.metrics import Metrics


def watch_publisher(metrics: Metrics, publisher: Publisher) -> None:
    """A resolver that is degraded is told by the log, by `on_degraded`, and here."""
    metrics.watch(
        "publisher_resolvers",
        "Resolvers that are told what this program publishes.",
        lambda: len(publisher.members),
    )
    metrics.watch(
        "publisher_resolvers_degraded",
        "Those of them that were not reached several times in a row.",
        lambda: sum(one.is_degraded for one in publisher.members),
    )
    metrics.watch(
        "publisher_values", "Values that this program publishes.", lambda: len(publisher.values)
    )
