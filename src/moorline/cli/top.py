"""Room: cli. `moor top`: what the nodes of a cluster do, second by second, out of their figures."""

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from moorline.cli import output
from moorline.cli.endpoint import Endpoint, with_node
from moorline.errors import Unreachable
from moorline.limits import FIGURES_BYTES_MAX, TOP_REACH_MS_MAX

COLUMNS = (
    *("node", "clients", "queue in/s", "queue out/s", "topic in/s", "topic out/s", "mqtt out/s"),
    *("lag", "cpu %", "memory MiB", "files", "problems"),
)
RATES = {
    "queue_in_per_s": "moorline_messages_stored_total",
    "queue_out_per_s": "moorline_messages_delivered_total",
    "topic_in_per_s": "moorline_topic_messages_published_total",
    "topic_out_per_s": "moorline_topic_messages_delivered_total",
    "mqtt_out_per_s": "moorline_mqtt_sent_total",
}
"""Figures that only grow; a node without the role has none."""
LEVELS = {
    "clients": "moorline_connections",
    "lag": "moorline_group_lag",
    "files": "process_open_fds",
    "problems": "moorline_problems",
}
CPU, MEMORY = "process_cpu_seconds_total", "process_resident_memory_bytes"

_FIGURE = re.compile(r"^([a-z_]+)(?:\{[^}]*\})? ([-+0-9.eE]+)$", re.MULTILINE)


class Look(NamedTuple):
    """The figures of one node at one moment."""

    at_s: float
    figures: dict[str, float]


@with_node
def top(
    endpoint: Endpoint,
    interval: Annotated[
        float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")
    ] = 2.0,
    count: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Looks, and then the end; 0: until Ctrl-C.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a node and look.")
    ] = False,
) -> None:
    """Show what the nodes of a cluster do: messages a second, clients, lag, processor, memory, problems.

    The figures are those of /metrics of every node that is alive, so this machine must reach their HTTP
    ports; one that is not reached has a row without figures. On a terminal the table is drawn anew each time.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(endpoint, interval, count, as_json))


async def _watch(endpoint: Endpoint, interval_s: float, count: int, as_json: bool) -> None:
    before: dict[str, Look] = {}
    looks = 0
    async with endpoint.connect() as moor:
        while True:
            pages = await _pages(moor)
            found = await asyncio.gather(
                *(asyncio.to_thread(_look, page, endpoint.ca) for page in pages.values())
            )
            now = {node: look for node, look in zip(pages, found, strict=True) if look is not None}
            if before:
                rows = [_row(node, before.get(node), now.get(node)) for node in sorted(pages)]
                _show(rows, as_json)
                looks += 1
                if looks == count:
                    return
            before = now
            await asyncio.sleep(interval_s)


async def _pages(moor: Any) -> dict[str, str]:
    """By node the page of its figures."""
    nodes = [one for one in await moor.nodes() if one.is_alive and one.http]
    if not nodes:
        raise Unreachable("no node of this cluster has an HTTP port that we are told of")
    return {one.name: f"{one.http.rstrip('/')}/metrics" for one in nodes}


def _look(page: str, ca: Path | None) -> Look | None:
    """In a thread; None where the node does not answer."""
    # Here: `moor --help` needs neither.
    import ssl
    import urllib.request
    from http.client import HTTPException

    context = None
    if page.startswith("https:"):
        context = ssl.create_default_context(cafile=ca)
    elif not page.startswith("http:"):
        return None
    try:
        with urllib.request.urlopen(  # noqa: S310 - only the two above
            page, timeout=TOP_REACH_MS_MAX / 1_000, context=context
        ) as answer:
            text = answer.read(FIGURES_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, HTTPException):  # the second of a port where something else answers
        return None
    return Look(time.monotonic(), figures_in(text))


def figures_in(text: str) -> dict[str, float]:
    """By name, those with labels added up."""
    found: dict[str, float] = {}
    for name, value in _FIGURE.findall(text):
        with contextlib.suppress(ValueError):  # a page of something else may have anything there
            found[name] = found.get(name, 0.0) + float(value)
    return found


def _row(node: str, before: Look | None, now: Look | None) -> dict[str, Any]:
    """What the table and --json have of a node; null is unknown."""
    row: dict[str, Any] = {"node": node}
    for name, figure in RATES.items():
        row[name] = _rate(before, now, figure)
    for name, figure in LEVELS.items():
        row[name] = None if now is None else _whole(now.figures.get(figure))
    cpu = _rate(before, now, CPU, digits=3)
    row["cpu_percent"] = None if cpu is None else round(100 * cpu, 1)
    row["memory_bytes"] = None if now is None else _whole(now.figures.get(MEMORY))
    return row


def _rate(before: Look | None, now: Look | None, figure: str, digits: int = 1) -> float | None:
    if before is None or now is None or figure not in now.figures:
        return None
    grown = now.figures[figure] - before.figures.get(figure, 0.0)
    # A node that was started again counts from nothing.
    return round(max(0.0, grown) / max(now.at_s - before.at_s, 1e-3), digits)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            output.emit_json(row)
        return
    if sys.stdout.isatty():
        output.write("\x1b[H\x1b[2J")
    output.table(COLUMNS, [tuple(_cells(row)) for row in rows])


def _cells(row: dict[str, Any]) -> Iterator[object]:
    yield from (row["node"], row["clients"], *(row[name] for name in RATES), row["lag"])
    yield row["cpu_percent"]
    memory = row["memory_bytes"]
    yield None if memory is None else memory >> 20
    yield from (row["files"], row["problems"])
