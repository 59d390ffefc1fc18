"""Room: node. Where the spans of a node's messages go, and its figures about them."""

import contextlib
from collections.abc import Callable

from moorline.config.trace import Trace
from moorline.metrics import Metrics
from moorline.net.span_export import SpanExport, span_export
from moorline.version import __version__


async def open_spans(
    stack: contextlib.AsyncExitStack, settings: Trace, home: str, metrics: Metrics
) -> SpanExport | None:
    """None where no collector is set; the figures are there all the same."""
    resource = {"service.instance.id": home, "service.version": __version__}
    export = await stack.enter_async_context(span_export(settings, resource))
    figures: dict[str, tuple[str, Callable[[SpanExport], float]]] = {
        "trace_spans_sent_total": ("Spans that the collector took.", lambda one: one.sent),
        "trace_spans_dropped_total": (
            "Spans that had no room, or that the collector did not take.",
            lambda one: one.dropped,
        ),
        "trace_posts_failed_total": (
            "Posts to the collector that failed.",
            lambda one: one.failures,
        ),
        "trace_seconds_full_total": (
            "Commits and deliveries with more to trace than a node does in a second.",
            lambda one: one.passed_over,
        ),
    }
    for name, (help_text, read) in figures.items():
        metrics.watch(
            name,
            help_text,
            lambda read=read: 0.0 if export is None else read(export),  # type: ignore[misc]
        )
    return export
