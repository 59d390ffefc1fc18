"""Act: a node answers. Calls over the native protocol, and what the node says of itself."""

import asyncio
import json
import time
import urllib.request

import moorline
from moorline.demo.stage import Stage

TITLE = "a node answers"

CALLS = 200_000
BATCH = 1_000


async def play(stage: Stage) -> None:
    async with moorline.connect(stage.address) as moor:
        described = await moor.describe()
        stage.tell(TITLE, "roles", ", ".join(described.roles))
        stage.tell(TITLE, "catalog", f"{described.catalog}, version {described.catalog_version}")
        bodies = [b"ahoy"] * BATCH
        started = time.perf_counter()
        for _ in range(CALLS // BATCH):
            await moor.echo_all(bodies)
        rate = CALLS / (time.perf_counter() - started)
        stage.tell(TITLE, f"{CALLS:,} calls, {BATCH:,} a batch", f"{rate:,.0f} a second")
    stage.claim(TITLE, "calls over the native protocol, in batches", f"{rate:,.0f} a second")
    health = await asyncio.to_thread(fetch, f"{stage.http}/healthz")
    stage.tell(TITLE, "GET /healthz", health)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        health = json.loads(response.read())
        return f"{response.status}, ok: {str(health['ok']).lower()}"
