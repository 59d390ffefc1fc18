"""Rows that are larger than a client takes: who would be sent one hears which it is, and nobody else does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.records.clients import AS_JSON, AS_MSGPACK, PATIENCE_S, Held, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.client.records.table import RecordTable
from moorline.errors import RowTooLarge
from moorline.limits import RECORD_ROW_BYTES_MAX, RECORD_SOCKET_ROW_BYTES_MAX
from moorline.records import copying, log_capture, table_host, table_sql
from moorline.records import form as forms

pytestmark = pytest.mark.process

ROWS = "insert into things select n, n % 3, 'NEW', 'n' from generate_series(1, 30) n"
SOON = moorline.RecordSettings(return_ms=50, return_ms_max=200)
GROWN = "update things set note = repeat('x', {size}) where id = 7"
SHRUNK = "update things set note = 'short' where id = 7"


@pytest.fixture
async def site(
    postgres: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setattr(table_host, "RECORD_ROW_RETURN_MS", 100)
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(ROWS)
        yield site


async def equal(site: Site, table: RecordTable) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            held = {(str(key),): (table.rows.seq(key), table.rows[key]) for key in table.rows}
            if table.is_synced and held == await site.table():
                return
            await asyncio.sleep(0.01)


async def test_a_row_beyond_the_parts_of_a_message_is_named_and_comes_when_it_is_smaller(
    site: Site,
) -> None:
    node = await site.node()
    async with (
        moorline.connect(str(node.addresses[0])) as moor,
        moor.records("things", settings=SOON) as table,
        moor.records("things", columns=["state"], settings=SOON) as states,
        moor.records("things", where={"workspace_id": 2}, settings=SOON) as others,
    ):
        heard = states.changes()
        await site.execute(GROWN.format(size=RECORD_ROW_BYTES_MAX))
        await until(lambda: table.refusal, "a refusal")
        assert isinstance(table.refusal, RowTooLarge)
        assert str(table.refusal).startswith("things: the row with the key 7 has more than")
        assert not table.is_synced
        assert table.is_connected
        # Nobody else was cut, and what happens comes to them.
        await site.execute("update things set state = 'RUN' where id in (7, 8)")
        await until(lambda: states.rows[7]["state"] == others.rows[8]["state"] == "RUN")
        with pytest.raises(RowTooLarge, match="key 7 "):
            async with moor.records("things", settings=SOON):
                pass
        assert (states.refusal, others.refusal) == (None, None)
        heard.close()
        async for change in heard:
            assert change.kind is moorline.ChangeKind.RECORD
        await site.execute(SHRUNK)
        await equal(site, table)
        assert table.refusal is None


@pytest.mark.parametrize("form", [AS_JSON, AS_MSGPACK])
async def test_a_row_beyond_the_buffer_of_a_socket_is_named(site: Site, form: str) -> None:
    node = await site.node()
    held, states = Held("things"), Held("things", columns=["id", "state"])
    async with (
        client(url_of(node), held, form=form) as made,
        client(url_of(node), states, form=form) as other,
    ):
        await until(lambda: held.ends and states.ends)
        # The largest that passes does, and the next one does not.
        empty = len('{"id":7,"workspace_id":1,"state":"NEW","note":""}')
        fits = RECORD_SOCKET_ROW_BYTES_MAX - empty
        if form == AS_MSGPACK:
            fits -= 100  # of its message, which is longer by the names in it
        await site.execute(GROWN.format(size=fits))
        await until(lambda: len(held.contents()[("7",)]["note"]) == fits)
        await site.execute(GROWN.format(size=RECORD_SOCKET_ROW_BYTES_MAX - empty + 1))
        await until(lambda: held.refused, "a refusal")
        assert held.refused[0].code == "ROW_TOO_LARGE"
        assert "key 7 " in held.refused[0].why
        await site.execute("update things set state = 'RUN' where id = 7")
        await until(lambda: states.contents()[("7",)]["state"] == "RUN")
        # The connection is there, for the other tables of its set and for a set without that row.
        assert made.close_code is other.close_code is None
        held.wanted["columns"] = ["id", "state"]
        held.cursor = ""
        held.rows.clear()
        await made.subscribe()
        await until(lambda: held.contents().get(("7",)) == {"id": 7, "state": "RUN"})
        assert held.drifts == states.drifts == 0


@pytest.mark.parametrize("how", ["full", "replay", "digest"])
async def test_whichever_way_it_comes_back_no_set_without_the_row_is_called_equal(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.setattr(forms.NativeForm, "row_bytes_max", 10_000)
    node = await site.node()
    path = None if how == "full" else tmp_path / "cache"
    async with moorline.connect(str(node.addresses[0])) as moor:
        options: dict[str, Any] = {"cache": path, "settings": SOON}
        if path is not None:
            async with moor.records("things", **options) as table:
                await equal(site, table)
        await site.execute(GROWN.format(size=10_000))
        async with moor.records("things", wait=False, **options) as table:
            if how == "digest":
                table._copy.copy.cursor = ""
            heard = table.changes()
            refusals = 0
            async with asyncio.timeout(PATIENCE_S):
                async for change in heard:
                    assert change.kind is not moorline.ChangeKind.SYNCED
                    refusals += change.kind is moorline.ChangeKind.REFUSED
                    # The second time it brings what it has.
                    if refusals == 2:
                        break
            heard.close()
            assert isinstance(table.refusal, RowTooLarge)
            await site.execute(SHRUNK)
            await equal(site, table)
            assert table._drifts == 0


async def equal_to(table: RecordTable, row: dict[str, Any]) -> None:
    await until(lambda: table.is_synced and dict(table.rows) == {1: row})


async def test_of_a_row_beyond_all_clients_postgres_sends_what_some_can_have(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nobody waits while it is read; whatever JSON is in it."""
    monkeypatch.setattr(table_sql, "RECORD_ROW_BYTES_MAX", 10_000)
    monkeypatch.setattr(forms.NativeForm, "row_bytes_max", 10_000)
    sent: list[int] = []
    read = copying.fields

    def reading(line: bytes) -> list[bytes | None]:
        sent.append(len(line))
        return read(line)

    monkeypatch.setattr(log_capture, "fields", reading)
    await site.execute(
        'create table wide (id bigint primary key, a text, b text, "c:""\'{n}" text, odd json)'
    )
    await site.register("wide", owner=None, filters=())
    odd = "c:\"'{n}"
    node = await site.node()
    async with (
        moorline.connect(str(node.addresses[0])) as moor,
        moor.records("wide", settings=SOON) as everything,
        moor.records("wide", columns=["b", odd], settings=SOON) as some,
        moor.records("wide", columns=["a"], settings=SOON) as longest,
    ):
        for attempt in ("live", "again"):
            insert = "insert into wide values (1, repeat('a', 300000), repeat('b', 6000), $1, $2)"
            await site.connection.execute(insert, attempt, '["\\u0000", "\\ud800"]')
            await until(lambda: everything.refusal and longest.refusal, "two refusals")
            wanted = {"id": 1, "b": "b" * 6_000, odd: attempt}
            await equal_to(some, wanted)
            assert isinstance(everything.refusal, RowTooLarge)
            assert max(sent) < 10_500
            # One that syncs anew reads it by a scan, and gets the same.
            async with moor.records("wide", columns=["b", odd], settings=SOON) as new:
                assert dict(new.rows) == {1: wanted}
            with pytest.raises(RowTooLarge, match="key 1 "):
                async with moor.records("wide", settings=SOON):
                    pass
            await site.execute("delete from wide")
            await until(lambda: everything.refusal is longest.refusal is None)
            await until(lambda: everything.is_synced and not everything.rows and not some.rows)
