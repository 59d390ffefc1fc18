"""Room: client. Figures of a publisher, for programs that are watched as nodes are.

watch_publisher(metrics, publisher)      beside the figures of whatever else the program does
"""

from collections.abc import Callable
from functools import partial

from moorline.client.values.publisher import Publisher
from moorline.metrics import Metrics

FIGURES: dict[str, tuple[str, Callable[[Publisher], float]]] = {
    "publisher_resolvers": (
        "Resolvers that are told what this program publishes.",
        lambda publisher: len(publisher.members),
    ),
    "publisher_resolvers_degraded": (
        "Those of them that were not reached several times in a row.",
        lambda publisher: sum(one.is_degraded for one in publisher.members),
    ),
    "publisher_values": (
        "Values that this program publishes.",
        lambda publisher: len(publisher.values),
    ),
}
"""A resolver that is degraded is told by the log, by `on_degraded`, and here."""


def watch_publisher(metrics: Metrics, publisher: Publisher) -> None:
    for name, (help_text, read) in FIGURES.items():
        metrics.watch(name, help_text, partial(read, publisher))
