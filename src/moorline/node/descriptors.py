"""Room: node. The figures of a node's file descriptors."""

from moorline.core.descriptors import Descriptors, Use
from moorline.core.door import Door
from moorline.metrics import Metrics
from moorline.net.descriptors import in_use


def watch(metrics: Metrics, descriptors: Descriptors, door: Door) -> None:
    """Shows who has how many of them on /metrics."""
    shares = descriptors.shares
    metrics.watch("descriptors", "File descriptors that are open now.", in_use)
    metrics.watch(
        "descriptors_max", "File descriptors that the system allows.", lambda: shares.limit
    )
    metrics.watch("descriptors_kept", "Those of them that peers cannot take.", lambda: shares.own)
    metrics.watch("connections_max", "Connections that are taken at once.", lambda: door.places)
    metrics.watch(
        "connections_refused_total",
        "Connections that were refused because there were too many.",
        lambda: door.refused,
    )
    metrics.watch(
        "connections_cut_total",
        "Connections without a hello that were cut because others wanted their places.",
        lambda: door.cut,
    )
    metrics.watch(
        "connections_http", "HTTP connections open now.", lambda: descriptors.held(Use.HTTP)
    )
