"""Which tables a node serves, and who is subscribed to them: for people who may list them."""

import asyncio
from pathlib import Path

import pytest
from tests.records.clients import PATIENCE_S
from tests.records.site import opened_site

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.wire.record_tables import ListRecordTables, RecordTablesListed

pytestmark = pytest.mark.process


async def listed(moor: moorline.Moor, table: str = "", after: str = "") -> RecordTablesListed:
    return await moor._caller.call(
        lambda call: ListRecordTables(call, table, after), RecordTablesListed
    )


async def test_tables_are_listed_with_who_is_subscribed(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    async with opened_site(postgres, tmp_path) as site:
        await site.register("others", owner=None)
        node = await site.node()
        async with moorline.connect(str(node.addresses[0])) as moor:
            found = await listed(moor)
            assert [one.name for one in found.tables] == ["others", "things"]
            assert found.is_last
            # A look opens nothing.
            assert not node.subjects.records.hosts  # type: ignore[union-attr]
            assert [one.name for one in (await listed(moor, after="others")).tables] == ["things"]
            async with moorline.connect(str(node.addresses[0])) as reader:
                where = {"state": ["taken", None]}
                async with reader.records("things", where=where, columns=["note"]):
                    shown = await listed(moor, "things")
                    (table,) = shown.tables
                    assert (table.subscribers, table.owner, table.key) == (1, "workspace_id", "id")
                    assert table.capture == "log"
                    (one,) = shown.subscribers
                    assert one.filter == "state in (taken, null)"
                    assert one.form == "native"
                    assert one.principal
            async with asyncio.timeout(PATIENCE_S):
                while (await listed(moor, "things")).subscribers:
                    await asyncio.sleep(0.02)
            assert not (await listed(moor, "none")).tables
