"""Clients of real nodes that prove who they are, and what they ask about it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.process.nodes import NodeProcess

from moorline.config.addresses import listen_address
from moorline.net.authentication import Credentials
from moorline.net.caller import Caller, open_caller
from moorline.wire.access import Identified, WhoAmI
from moorline.wire.audit import AuditRead, ReadAudit

WITHIN_S = 30


@asynccontextmanager
async def proven(
    address: str,
    credentials: Credentials | None = None,
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
) -> AsyncIterator[Caller]:
    caller = await open_caller(
        listen_address(address),
        lambda: Caller(
            "test", hello_timeout_ms=30_000, keepalive_ms=600_000, credentials=credentials
        ),
        timeout_ms=30_000,
        ca=ca,
        certificate=certificate,
        key=certificate,
    )
    try:
        yield caller
    finally:
        caller.close("DONE", "")


async def who(caller: Caller) -> Identified:
    return await caller.call(WhoAmI, Identified)


async def read_audit(caller: Caller) -> AuditRead:
    """What needs the right `l` at /admin/audit."""
    return await caller.call(ReadAudit, AuditRead)


async def over(caller: Caller) -> str:
    """How the link ended."""
    async with asyncio.timeout(WITHIN_S):
        return str(await asyncio.shield(caller.lost))


def audited(node: NodeProcess) -> list[dict[str, Any]]:
    """The lines of its trail so far."""
    return [
        json.loads(line)
        for file in sorted((node.data / "audit").iterdir())
        for line in file.read_bytes().splitlines()
    ]
