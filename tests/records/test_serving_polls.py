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
from tests.records.clients import Held
from tests.records.site import Site, opened_site
from tests.waiting import until

from moorline.catalog import EmbeddedPostgres
from moorline.node.node import Node
from moorline.records import form as forms
from moorline.records import polling
from moorline.wire.records import Subscribe, client_json


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
        "text": "a sync of more than 2000 bytes needs a WebSocket",
    }
    tables = node.subjects.records
    assert tables is not None
    await until(lambda: not tables.hosts["things"].receivers, "nothing of it is kept")


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
