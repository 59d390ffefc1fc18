"""Clients without WebSockets: one request for each sync."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.records.clients import Held, client
from tests.records.site import Site, opened_site, url_of
from tests.waiting import until

import moorline
from moorline.catalog import EmbeddedPostgres
from moorline.node.node import Node
from moorline.records import form as forms
from moorline.records import paging, polling
from moorline.wire.records import Subscribe, SyncEnd, client_json


@pytest.fixture
async def site(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened_site(postgres, tmp_path) as site:
        await site.execute(
            "insert into things select n, 1, 'NEW', 'n' from generate_series(1, 100) n"
        )
        yield site


async def asked(node: Node, body: bytes, **headers: str) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        request = urllib.request.Request(f"{node.http}/records/poll", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    return await asyncio.to_thread(ask)


async def poll(node: Node, held: Held) -> None:
    status, body = await asked(node, msgspec.json.encode(Subscribe(1, [held.subscription()])))
    assert status == 200, body
    for message in client_json.decode(body):
        held.take(message)


async def test_a_poll_brings_everything_and_then_what_changed(site: Site) -> None:
    node = await site.node()
    held = Held("things")
    await poll(node, held)
    await site.equal(held)
    assert held.hows == ["full"]
    await site.execute("delete from things where id = 1")
    await poll(node, held)
    await site.equal(held)
    assert held.hows[1] == "replay"
    tables = node.subjects.records
    assert tables is not None
    waiting = asyncio.create_task(poll(node, held))
    await until(lambda: tables.hosts["things"].receivers, "it waits")
    await site.execute("insert into things values (500, 1, 'NEW', 'n')")
    await waiting
    await site.equal(held)
    assert held.drifts == 0
    await until(lambda: not tables.hosts["things"].receivers, "nothing of it is kept")


async def test_a_poll_whose_cursor_leads_nowhere_gets_everything(site: Site) -> None:
    node = await site.node()
    held = Held("things")
    held.rows = {("9000",): (1, {"id": 9_000})}
    await poll(node, held)
    await site.equal(held)
    assert held.hows == ["full"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_sync_that_is_larger_than_an_answer_is_refused_by_name(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    node = await site.node()
    held = Held("things")
    if is_known:
        await poll(node, held)
        await site.execute("update things set note = 'other'")
    monkeypatch.setattr(polling, "RECORDS_POLL_BYTES_MAX", 2_000)
    status, body = await asked(node, msgspec.json.encode(Subscribe(1, [held.subscription()])))
    assert status == 413
    assert json.loads(body) == {
        "code": "TOO_LARGE",
        "text": "a sync of more than 2000 bytes needs a WebSocket, or pages",
    }
    tables = node.subjects.records
    assert tables is not None
    await until(lambda: not tables.hosts["things"].receivers, "nothing of it is kept")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "RECORDS_POLL_BYTES_MAX", 2_000)
    monkeypatch.setattr(paging, "RECORDS_PAGE_BYTES", 1_500)


async def polled(node: Node, held: Held, pages: int = 1_000) -> int:
    """So many pages, or all: how many came. Each is proven to be the table up to its end."""
    for number in range(1, pages + 1):
        await poll(node, held)
        assert held.drifts == 0
        end = held.heard[-1]
        assert isinstance(end, SyncEnd), held.heard
        if not end.more:
            return number
    return pages


@pytest.mark.usefixtures("small_pages")
async def test_what_no_answer_can_hold_comes_in_pages_while_the_table_changes(site: Site) -> None:
    node = await site.node()
    held = Held("things", pages=True)
    await polled(node, held, 2)
    assert 1 < len(held.rows) < 60
    assert held.hows == ["full", "replay"]
    await site.execute(
        "update things set note = 'early' where id = 2",
        "update things set note = 'late' where id = 99",
        "delete from things where id in (1, 100)",
        "insert into things values (0, 1, 'NEW', 'before'), (500, 1, 'NEW', 'behind')",
        # Away from the rows that came, and among them; the row keeps all but its key.
        "update things set id = 400 where id = 5",
        "update things set id = -3 where id = 98",
    )
    assert await polled(node, held) > 2
    await site.equal(held)
    assert set(held.hows[1:]) == {"replay"}
    await site.execute("update things set note = 'now' where id = 50")
    assert await polled(node, held) == 1, "from its end on it is a poll like any other"
    await site.equal(held)
    tables = node.subjects.records
    assert tables is not None
    await until(lambda: not tables.hosts["things"].receivers, "nothing of it is kept")


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("text", ["text", 'text collate "C"', "varchar(40)"])
async def test_pages_go_by_keys_of_several_columns_and_of_any_text(site: Site, text: str) -> None:
    node = await site.node()
    await site.execute(
        f"create table pairs (name {text}, number bigint, note text, primary key (name, number))",
        "insert into pairs select (array['', 'a''b', 'ключ', E'\\\\', 'Z', 'a'])[1 + abs(n) % 6], n, 'n' "
        "from generate_series(-30, 30) n",
    )
    await site.register("pairs", key=("name", "number"), owner=None, filters=())
    held = Held("pairs", pages=True, columns=["note"])
    await polled(node, held, 1)
    await site.execute(
        "update pairs set note = 'other' where number % 2 = 0", "delete from pairs where number = 7"
    )
    assert await polled(node, held) > 1
    rows = await site.connection.fetch("select name, number::text, note, moor_seq from pairs")
    wanted = {(row["name"], row["number"]): (row["moor_seq"], row["note"]) for row in rows}
    assert {key: (seq, row["note"]) for key, (seq, row) in held.rows.items()} == wanted


@pytest.mark.usefixtures("small_pages")
async def test_pages_begin_anew_where_the_log_does_not_lead_on(site: Site) -> None:
    node = await site.node()
    held = Held("things", pages=True)
    await polled(node, held, 2)
    await site.execute(
        "truncate things", "insert into things select n, 1, 'A', 'x' from generate_series(1, 90) n"
    )
    assert await polled(node, held) > 2
    assert held.hows[:3] == ["full", "replay", "full"]
    await site.equal(held)


@pytest.mark.usefixtures("small_pages")
async def test_the_cursor_of_a_page_is_of_its_filter_and_rights_and_of_no_whole_table(
    site: Site,
) -> None:
    node = await site.node()
    held = Held("things", pages=True)
    await polled(node, held, 2)
    some, cursor = dict(held.rows), held.cursor
    # Another filter begins anew; so does who holds other rows than the cursor says.
    held.wanted["where"] = {"state": "NEW"}
    await poll(node, held)
    assert held.hows[-1] == "full"
    del held.wanted["where"]
    held.cursor, held.rows = cursor, dict(list(some.items())[1:])
    await poll(node, held)
    assert held.hows[-1] == "full"
    # A WebSocket takes it for no place to replay from: what is lacking is found out.
    other = Held("things")
    other.cursor, other.rows, other.salt = cursor, some, held.salt
    async with client(url_of(node), other):
        await until(lambda: other.ends)
    assert other.hows == ["digest"]
    await site.equal(other)
    # And who takes no pages is told that it needs one or the other.
    other.cursor = cursor
    status, _ = await asked(node, msgspec.json.encode(Subscribe(1, [other.subscription()])))
    assert status == 413


@pytest.mark.usefixtures("small_pages")
async def test_rights_that_change_while_a_page_is_read_bring_its_reader_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await site.node()
    await site.execute("update things set workspace_id = id % 2")
    async with moorline.connect(str(node.addresses[0])) as operator:
        await operator.access.add_user("mona")
        for owner in (0, 1):
            await operator.access.add_grant(f"/records/things/{owner}", "mona", "s")
        token = (await operator.access.add_token("mona", "t")).token
        head = {"Authorization": f"Bearer {token}"}
        read = paging.read_page

        async def with_a_change(*arguments: Any) -> paging.Page:
            page = await read(*arguments)
            tables = node.subjects.records
            assert tables is not None
            before = tables.permits.version
            await operator.access.remove_grant("/records/things/1", "mona", "s")
            await until(lambda: tables.permits.version > before, "it hears of it")
            return page

        monkeypatch.setattr(paging, "read_page", with_a_change)
        held = Held("things", pages=True)
        body = msgspec.json.encode(Subscribe(1, [held.subscription()]))
        status, text = await asked(node, body, **head)
        assert (status, json.loads(text)["code"]) == (503, "RESTART")
        monkeypatch.setattr(paging, "read_page", read)
        for _ in range(100):
            status, text = await asked(
                node, msgspec.json.encode(Subscribe(1, [held.subscription()])), **head
            )
            assert status == 200
            for message in client_json.decode(text):
                held.take(message)
            end = held.heard[-1]
            if isinstance(end, SyncEnd) and not end.more:
                break
        assert held.drifts == 0
        assert {row["workspace_id"] for row in held.contents().values()} == {0}


async def test_a_row_that_is_larger_than_an_answer_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms.PollForm, "row_bytes_max", 1_000)
    node = await site.node()
    await site.execute("update things set note = repeat('x', 1000) where id = 3")
    held = Held("things")
    await poll(node, held)
    assert held.refused[0].code == "ROW_TOO_LARGE"
    assert "key 3 " in held.refused[0].why
    assert not held.ends


async def test_polls_that_are_refused(site: Site) -> None:
    node = await site.node()
    held = Held("nothing")
    await poll(node, held)
    assert held.refused[0].code == "NO_SUCH_TABLE"
    bad: list[tuple[Any, int]] = [
        (b"{", 400),
        (b'{"sync": 1, "tables": [{"table": "\xff"}]}', 400),
        (msgspec.json.encode(Subscribe(1, [])), 400),
        (msgspec.json.encode(Subscribe(1, [Held("a").subscription()] * 2)), 400),
    ]
    for body, status in bad:
        found, text = await asked(node, body)
        assert found == status
        assert json.loads(text)["code"] == "BAD_REQUEST"
    body = msgspec.json.encode(Subscribe(1, [held.subscription()]))
    assert (await asked(node, body, Origin="https://evil.example"))[0] == 403
