"""The audit trail over the wire: pages of bounded size, filters, and a reader that goes on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

from tests.access.granted import unguarded

from moorline.access.audit import Audit, open_audit
from moorline.access.audit_commands import AuditCommands
from moorline.config.addresses import Address
from moorline.core.access.audit import Act, AuditProof, Kind, Verdict, decoded
from moorline.limits import AUDIT_PAGE_BYTES_MAX, AUDIT_ROWS_PER_PAGE_MAX, HELLO_TIMEOUT_MS
from moorline.net.caller import Caller, open_caller
from moorline.net.listener import Admission, Listeners
from moorline.net.native import NativeProtocol
from moorline.testing.memory_disk import MemoryDisk
from moorline.wire.audit import AuditRead, ReadAudit
from moorline.wire.link import Welcome

KEEPALIVE_MS = 600_000


def operator(number: int) -> Act:
    return Act(
        Kind.OPERATOR,
        f"p{number % 3}",
        AuditProof.PASSWORD,
        "",
        "DeleteQueue",
        f"/queues/{'x' * 400}/{number}",
        Verdict.GRANTED,
    )


@contextlib.asynccontextmanager
async def reading() -> AsyncIterator[tuple[Audit, Caller]]:
    """A trail, and a client of the node that has it."""
    async with open_audit(MemoryDisk(), "node-1", sync=False) as audit:
        commands = AuditCommands(audit)
        protocol = NativeProtocol(
            unguarded(commands.declared()),
            lambda version, keepalive_ms: Welcome(version, "n", keepalive_ms=keepalive_ms),
        )
        listeners = Listeners(
            Admission(
                anonymous="loopback",
                connections_max=10,
                hello_timeout_ms=HELLO_TIMEOUT_MS,
                keepalive_ms=KEEPALIVE_MS,
            ),
        )
        try:
            (address,) = await listeners.open(Address("tcp", "127.0.0.1", 0), None, protocol)
            caller = await open_caller(
                address,
                lambda: Caller(
                    "test", hello_timeout_ms=HELLO_TIMEOUT_MS, keepalive_ms=KEEPALIVE_MS
                ),
                timeout_ms=HELLO_TIMEOUT_MS,
            )
            yield audit, caller
            caller.close("DONE", "")
        finally:
            commands.close()
            await listeners.close()


async def pages(
    caller: Caller, file: int = 0, offset: int = 0, principal: str = ""
) -> list[AuditRead]:
    """All pages from there on."""
    found: list[AuditRead] = []
    while True:
        make = partial(ReadAudit, file=file, offset=offset, principal=principal)
        page = await caller.call(make, AuditRead)
        found.append(page)
        file, offset = page.file, page.offset
        if page.is_end:
            return found


def numbers(found: list[AuditRead]) -> list[int]:
    lines = [decoded(line) for page in found for line in page.lines]
    return [int(line.path.rpartition("/")[2]) for line in lines if line is not None]


async def test_all_lines_come_page_by_page_and_later_those_that_came_since() -> None:
    async with reading() as (audit, caller):
        await asyncio.gather(*(audit.recorded(operator(number)) for number in range(3_000)))
        found = await pages(caller)
        assert numbers(found) == list(range(3_000))
        assert len(found) > 2
        assert all(len(page.lines) <= AUDIT_ROWS_PER_PAGE_MAX for page in found)
        assert all(sum(map(len, page.lines)) <= AUDIT_PAGE_BYTES_MAX for page in found)
        await audit.recorded(operator(3_000))
        since = await pages(caller, found[-1].file, found[-1].offset)
        assert numbers(since) == [3_000]


async def test_only_what_is_wanted_comes() -> None:
    async with reading() as (audit, caller):
        for number in range(30):
            await audit.recorded(operator(number))
        assert numbers(await pages(caller, principal="p1")) == list(range(1, 30, 3))
        assert numbers(await pages(caller, principal="nobody")) == []


async def test_a_trail_without_lines_has_an_end() -> None:
    async with reading() as (_, caller):
        (page,) = await pages(caller)
        assert (page.lines, page.is_end, page.unreadable) == ([], True, 0)
