"""Subscriptions that are cut all at once: how long until they go on, and at how many bytes.

    python -m bench.reconnect [--quick] [--json]

Plain subscriptions to topics of their own, by clients that have a thousand each, at one node behind a port that
can be cut. All are cut together, and come back by themselves. Bytes are those of both directions behind the
cut, hello included; a pause by chance is in the time, so the work alone is told as the CPU time of both ends.
`anew` is what the same clients did when they first subscribed.
"""

import argparse
import asyncio
import contextlib
import time
from pathlib import Path

import moorline
from bench.node import RunningNode, cpu_s
from bench.report import Report, main
from chaos.proxy import CHUNK_BYTES, LinkProxy
from moorline import EventKind
from moorline.client.events import Events
from moorline.client.moor import Moor

SUBSCRIPTIONS, QUICK = 10_000, 2_000
PER_CLIENT = 1_000


class CountingProxy(LinkProxy):
    """A port that can be cut, and counts what passes."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_bytes = 0

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                self.passed_bytes += len(data)
                writer.write(data)
                await writer.drain()


async def resumed(events: Events) -> None:
    async for event in events:
        if event.kind is EventKind.RESUMED:
            return
