"""Room: config. The section `[trace]`: where traces of messages go, and of how many."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from moorline.config.problem import Problem, text_setting
from moorline.core.access.web_url import Url

ENDPOINT_FORM = (
    "https://HOST[:PORT]/v1/traces, where a collector takes OTLP over HTTP; http:// on this machine "
    "alone"
)


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[trace]`."""

    endpoint: Annotated[
        str,
        text_setting(
            "Collector of OpenTelemetry that gets spans of messages; empty is none.", ENDPOINT_FORM
        ),
    ] = ""
    one_in: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000_000,
            description="Of the messages of a shard that have no header traceparent one in so many is "
            "traced; 0 is none. Those that have one are, if it says so.",
        ),
    ] = 1_000
    service: Annotated[
        str, Meta(min_length=1, max_length=255, description="What traces call the service.")
    ] = "moorline"
    ca: Annotated[
        str,
        Meta(description="PEM file of the CAs of the collector, in place of those of the system."),
    ] = ""


def trace_problems(settings: Trace) -> Iterator[Problem]:
    if not settings.endpoint:
        return
    try:
        Url.parsed(settings.endpoint)
    except ValueError as error:
        text = f'"{settings.endpoint}": {error}; accepted: {ENDPOINT_FORM}'
        yield Problem(("trace.endpoint",), text)
