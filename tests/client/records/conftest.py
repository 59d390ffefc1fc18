"""A table of ten rows, a node that serves it, and copies of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.client.records.table_node import NAMED, ServedTable, TableNode

import moorline
from moorline.client.records.settings import RecordSettings
from moorline.client.records.table import RecordTable

SOON = RecordSettings(return_ms=20, return_ms_max=200)


@pytest.fixture
def served() -> ServedTable:
    table = ServedTable()
    for key in range(1, 11):
        table.put(key, "NEW", workspace_id=1 + key % 2)
    return table


@pytest_asyncio.fixture
async def node(served: ServedTable) -> AsyncIterator[TableNode]:
    node = TableNode(served)
    async with node.open():
        yield node


@contextlib.asynccontextmanager
async def opened(node: TableNode, **options: Any) -> AsyncIterator[RecordTable]:
    async with (
        moorline.connect(node.address) as moor,
        moor.records(NAMED, settings=SOON, **options) as table,
    ):
        yield table


def is_equal(table: RecordTable, served: ServedTable, **where: Any) -> bool:
    """State equal: versions and contents, and the digest of it."""
    seen = served.seen(where)
    held = {key: (table.rows.seq(key), table.rows[key]) for key in table.rows}
    table._copy.copy.check()
    return held == seen and table.digest.count == len(seen)


def kinds(changes: list[moorline.RecordChange]) -> list[str]:
    return [change.kind.value for change in changes]


async def read(changes: Any, count: int) -> list[moorline.RecordChange]:
    async with asyncio.timeout(30):
        return [await anext(changes) for _ in range(count)]
