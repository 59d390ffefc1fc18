"""Room: cli. `moor bench`: how fast one's own node is, with queues and a topic of its own, within bounds."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from moorline.cli import output
from moorline.cli.confirming import Yes, confirm
from moorline.cli.endpoint import Endpoint, with_node
from moorline.cli.progress import progress
from moorline.limits import (
    BENCH_BATCH,
    BENCH_BODY_BYTES_MAX,
    BENCH_CLIENTS_MAX,
    BENCH_SECONDS_MAX,
    BENCH_TTL_S,
)

if TYPE_CHECKING:
    from moorline.client.moor import Moor

PREFIX = "moor-bench"
"""What is published by a trial is below it, and expires by itself."""


class Part(StrEnum):
    QUEUES = "queues"
    TOPICS = "topics"
    SINGLES = "singles"


class Ran(NamedTuple):
    """What one client did."""

    messages: int
    took_ms: list[float]
    """Of each call."""


Client = Callable[["Moor", bytes, float], Awaitable[Ran]]


@with_node
def bench(
    endpoint: Endpoint,
    part: Annotated[
        list[Part] | None, typer.Option("--part", help="Only this one. Repeatable.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.2, max=BENCH_SECONDS_MAX, help="For each part.")
    ] = 5.0,
    clients: Annotated[
        int, typer.Option(min=1, max=BENCH_CLIENTS_MAX, help="Connections at once.")
    ] = 4,
    size: Annotated[
        int, typer.Option("--bytes", min=1, max=BENCH_BODY_BYTES_MAX, help="Of each message.")
    ] = 100,
    yes: Yes = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a part.")] = False,
) -> None:
    """Measure a node: messages a second and the time of a call, as these clients see them.

    `queues`: each client sends, reads and acknowledges in a queue of its own, which is deleted at the end;
    `topics`: publishes in batches; `singles`: publishes one message at a time. Others on the node feel it.
    What is published goes to topics below moor-bench/, expires within a minute for readers, and keeps its
    room on the disk until retention takes it. Nothing of anybody else is read or changed.
    """
    parts = part or list(Part)
    confirm(f"Put load on {endpoint.address} for {seconds * len(parts):.0f} s?", yes=yes)
    rows = asyncio.run(_run(endpoint, parts, seconds, clients, bytes(size)))
    if as_json:
        for row in rows:
            output.emit_json(row)
        return
    columns = ("part", "clients", "messages", "messages/s", "p50 ms", "p99 ms")
    names = ("part", "clients", "messages", "messages_per_s", "p50_ms", "p99_ms")
    output.table(columns, [tuple(row[name] for name in names) for row in rows])


async def _run(
    endpoint: Endpoint, parts: Sequence[Part], seconds: float, clients: int, body: bytes
) -> list[dict[str, Any]]:
    rows = []
    with progress("measuring") as seen:
        for number, part in enumerate(parts):
            seen(number, len(parts))
            rows.append(await _measured(endpoint, part, seconds, clients, body))
        seen(len(parts), len(parts))
    return rows


async def _measured(
    endpoint: Endpoint, part: Part, seconds: float, clients: int, body: bytes
) -> dict[str, Any]:
    run = {Part.QUEUES: _queues, Part.TOPICS: _topics, Part.SINGLES: _singles}[part]
    started = time.monotonic()
    done = await asyncio.gather(*(_client(endpoint, run, body, seconds) for _ in range(clients)))
    took_s = time.monotonic() - started
    messages = sum(one.messages for one in done)
    took_ms = sorted(ms for one in done for ms in one.took_ms)
    return {
        "part": part.value,
        "clients": clients,
        "bytes": len(body),
        "seconds": round(took_s, 2),
        "messages": messages,
        "messages_per_s": round(messages / took_s),
        "p50_ms": _at(took_ms, 0.5),
        "p99_ms": _at(took_ms, 0.99),
    }


def _at(sorted_ms: Sequence[float], share: float) -> float | None:
    return round(sorted_ms[int(share * (len(sorted_ms) - 1))], 2) if sorted_ms else None


async def _client(endpoint: Endpoint, run: Client, body: bytes, seconds: float) -> Ran:
    async with endpoint.connect() as moor:
        return await run(moor, body, time.monotonic() + seconds)


async def _queues(moor: "Moor", body: bytes, until_s: float) -> Ran:
    """A message is counted when it is acknowledged; the time is that of a batch, all the way."""
    queue = await moor.create_queue()
    messages, took_ms = 0, []
    try:
        reading = queue.read(window=BENCH_BATCH)
        while (began_s := time.monotonic()) < until_s:
            for sent in await moor.send_all([(queue.id, body)] * BENCH_BATCH):
                if isinstance(sent, Exception):
                    raise sent
            taken = [await anext(reading) for _ in range(BENCH_BATCH)]
            for refused in await moor.ack_all(taken):
                if refused is not None:
                    raise refused
            messages += BENCH_BATCH
            took_ms.append((time.monotonic() - began_s) * 1_000)
    finally:
        # Also at Ctrl-C: nothing of ours stays.
        await asyncio.shield(queue.delete())
    return Ran(messages, took_ms)


async def _topics(moor: "Moor", body: bytes, until_s: float) -> Ran:
    from moorline.client.record import record

    topic = f"{PREFIX}/{secrets.token_hex(6)}"
    batch = [record(topic, body, ttl_s=BENCH_TTL_S) for _ in range(BENCH_BATCH)]
    messages, took_ms = 0, []
    while (began_s := time.monotonic()) < until_s:
        for stored in await moor.publish_all(batch):
            messages += stored.stored
        took_ms.append((time.monotonic() - began_s) * 1_000)
    return Ran(messages, took_ms)


async def _singles(moor: "Moor", body: bytes, until_s: float) -> Ran:
    topic = f"{PREFIX}/{secrets.token_hex(6)}"
    messages, took_ms = 0, []
    while (began_s := time.monotonic()) < until_s:
        await moor.publish(topic, body, ttl_s=BENCH_TTL_S)
        messages += 1
        took_ms.append((time.monotonic() - began_s) * 1_000)
    return Ran(messages, took_ms)
